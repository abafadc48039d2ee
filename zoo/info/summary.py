"""One answer out of the counts: parameters, multiply-adds, memory."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch

from zoo.builder import build_model, build_optimizer
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Description
from zoo.errors import UserError
from zoo.info.memory import activation_bytes, cache_bytes, optimizer_bytes, parameter_bytes
from zoo.info.operations import count_products
from zoo.info.parameters import Line, by_part, parts, table
from zoo.recipe import Recipe

_DTYPES = {"bf16-true": torch.bfloat16, "16-true": torch.float16, "64-true": torch.float64, "64": torch.float64}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Information:
    """What a model costs. Bytes are those of one whole replica; ``None`` is unknown.

    Attributes:
        name: of the recipe.
        parameters: ``total``, ``trainable``, ``embedding`` and ``by_part``.
        table: the lines of the parameter table.
        tokens: length of a sequence for all that follows.
        rows: sequences in one forward pass of training, for the activations.
        macs_per_token: multiply-adds of a forward pass, head included, divided by its tokens.
        unknown_operations: why ``macs_per_token`` is unknown.
        dtype: of the parameters.
        cache_bytes_per_token: growth of the cache of one sequence with each token.
        memory_bytes: ``weights``, ``gradients``, ``optimizer`` and ``activations``.
    """

    name: str
    parameters: dict[str, Any]
    table: list[Line]
    tokens: int
    rows: int
    macs_per_token: int | float | None
    unknown_operations: list[str]
    dtype: str
    cache_bytes_per_token: int | None
    memory_bytes: dict[str, int | None]

    def json(self) -> dict[str, Any]:
        """All of it as plain values."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**values, "table": [line._asdict() for line in self.table]}


def information(recipe: Recipe, description: Description | None = None) -> Information:
    """Count and measure the model of a recipe.

    Args:
        recipe: a checked recipe; a preset is enough.
        description: sizes of the data, for those that the architecture leaves null.

    Raises:
        UserError: parts that don't fit each other, or an unknown length.
    """
    model = build_model(recipe, description, device="meta").to(_dtype(recipe))
    tokens = _length(recipe, model, description)
    rows = _rows(recipe)
    found = parts(model, {component.load(): component.name for component in recipe.components()})
    products = count_products(lambda: _scores(model.eval(), tokens))
    memory = {
        "weights": parameter_bytes(model),
        "gradients": parameter_bytes(model, trainable=True),
        "optimizer": optimizer_bytes(model, build_optimizer(recipe)),
        "activations": activation_bytes(model, _ids(rows, tokens)),
    }
    return Information(
        name=recipe.name,
        parameters={
            "total": sum(part.parameters for part in found),
            "trainable": sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
            "embedding": sum(part.parameters for part in found if part.embeds),
            "by_part": by_part(found),
        },
        table=table(model, found),
        tokens=tokens,
        rows=rows,
        macs_per_token=_per_token(products.multiply_adds, tokens),
        unknown_operations=products.unknown,
        dtype=str(next(model.parameters()).dtype).removeprefix("torch."),
        cache_bytes_per_token=_cache(model, tokens),
        memory_bytes=memory,
    )


def _dtype(recipe: Recipe) -> torch.dtype:
    return _DTYPES.get(str(recipe.trainer.get("precision")), torch.float32)


def _length(recipe: Recipe, model: Architecture, description: Description | None) -> int:
    """Tokens of a sequence: the data's, else the longest that the architecture is made for."""
    length = (description and description.max_length) or getattr(model.config, "max_length", None)
    if length is None:
        raise UserError(
            "the length of a sequence isn't known: architecture.max_length is null and no data was read",
            where=recipe.where("architecture"),
            fix="set it, for example architecture.max_length=1024",
        )
    return length


def _rows(recipe: Recipe) -> int:
    """Rows of one forward pass on one device; a preset has no batch, and counts one row."""
    if "task" not in recipe.tree:
        return 1
    devices = recipe.trainer.get("devices")
    share = math.ceil(recipe.config("data").batch_size / (devices if isinstance(devices, int) and devices > 0 else 1))
    return min(recipe.training.micro_batch_size or share, share)


def _ids(rows: int, tokens: int) -> torch.Tensor:
    return torch.zeros(rows, tokens, dtype=torch.int64, device="meta")


def _scores(model: Architecture, tokens: int) -> torch.Tensor:
    return model.head(model(_ids(1, tokens)).hidden)


def _per_token(multiply_adds: int | None, tokens: int) -> int | float | None:
    if multiply_adds is None:
        return None
    return multiply_adds // tokens if multiply_adds % tokens == 0 else multiply_adds / tokens


def _cache(model: Architecture, tokens: int) -> int | None:
    """Bytes per token, measured at a length of 16 or, for a shorter model, at its own."""
    if "cache" not in model.offers or tokens < 2:
        return None
    return cache_bytes(model, min(16, tokens - 1))
