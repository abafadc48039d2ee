"""One answer out of the counts: parameters, multiply-adds, memory."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from zoo.builder import build_model, build_optimizer
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Description
from zoo.contracts.feed_forward import FeedForward
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
        parameters: ``total``, ``active`` for one token, ``trainable``, ``embedding`` and ``by_part``.
        table: the lines of the parameter table.
        tokens: length of a sequence for all that follows; of source and target alike where there are two.
        rows: sequences in one forward pass of training, for the activations.
        macs: multiply-adds of a forward pass, head included: ``macs_per_token``, or ``macs_per_image``, or
            ``macs_per_source_token`` of the encoder and ``macs_per_target_token`` of all else.
        unknown_operations: why these are unknown.
        dtype: of the parameters.
        cache_bytes_per_token: growth of the cache of one sequence with each token.
        memory_bytes: ``weights``, ``gradients``, ``optimizer`` and ``activations``.
    """

    name: str
    parameters: dict[str, Any]
    table: list[Line]
    tokens: int
    rows: int
    macs: dict[str, int | float | None]
    unknown_operations: list[str]
    dtype: str
    cache_bytes_per_token: int | None
    memory_bytes: dict[str, int | None]

    def json(self) -> dict[str, Any]:
        """All of it as plain values."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**values, **values.pop("macs"), "table": [line._asdict() for line in self.table]}


def information(recipe: Recipe, description: Description | None = None) -> Information:
    """Count and measure the model of a recipe.

    Args:
        recipe: a checked recipe; a preset is enough.
        description: sizes of the data, for those that the architecture leaves null.

    Raises:
        UserError: parts that don't fit each other, or an unknown length.
    """
    model = build_model(recipe, description, device="meta").to(parameter_dtype(recipe))
    tokens = sequence_length(recipe, model, description)
    rows = _rows(recipe)
    found = parts(model, {component.load(): component.name for component in recipe.components()})
    macs, unknown = multiply_adds(model.eval(), tokens)
    memory = {
        "weights": parameter_bytes(model),
        "gradients": parameter_bytes(model, trainable=True),
        "optimizer": optimizer_bytes(model, build_optimizer(recipe)),
        "activations": activation_bytes(model, *_inputs(model, rows, tokens)),
    }
    return Information(
        name=recipe.name,
        parameters={
            "total": sum(part.parameters for part in found),
            "active": sum(part.parameters for part in found) - _idle(model),
            "trainable": sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
            "embedding": sum(part.parameters for part in found if part.embeds),
            "by_part": by_part(found),
        },
        table=table(model, found),
        tokens=tokens,
        rows=rows,
        macs=macs,
        unknown_operations=unknown,
        dtype=str(next(model.parameters()).dtype).removeprefix("torch."),
        cache_bytes_per_token=_cache(model, tokens),
        memory_bytes=memory,
    )


def _idle(model: Architecture) -> int:
    """Parameters that one token has nothing to do with: experts that it isn't sent to."""
    return sum(module.idle_parameters() for module in model.modules() if isinstance(module, FeedForward))


def parameter_dtype(recipe: Recipe) -> torch.dtype:
    """In what a recipe's parameters are kept."""
    return _DTYPES.get(str(recipe.trainer.get("precision")), torch.float32)


def sequence_length(recipe: Recipe, model: Architecture, description: Description | None) -> int:
    """Tokens of a sequence: the embedding's own, the data's, else the longest that the architecture is made for."""
    length = (
        model.embedding.length or (description and description.max_length) or getattr(model.config, "max_length", None)
    )
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


def _inputs(model: Architecture, rows: int, tokens: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Inputs of a forward pass on the meta device, and what else it must be given."""
    inputs = model.embedding.example(1, tokens).to("meta")
    if inputs.is_floating_point():
        inputs = inputs.to(next(model.parameters()).dtype)
    context = {name: value.to("meta") for name, value in model.context(rows, tokens).items()}
    return inputs.repeat(rows, *[1] * (inputs.ndim - 1)), context


def multiply_adds(model: Architecture, tokens: int) -> tuple[dict[str, int | float | None], list[str]]:
    """Multiply-adds by what they are counted for, and the operations that have no formula."""
    inputs, context = _inputs(model, 1, tokens)
    whole = count_products(lambda: model.head(model(inputs, **context).hidden))
    if "patches" in model.embedding.offers:
        return {"macs_per_image": whole.multiply_adds}, whole.unknown
    if "cross" not in model.offers:
        return {"macs_per_token": _share(whole.multiply_adds, tokens)}, whole.unknown
    encoder = count_products(lambda: model.encode(**context)).multiply_adds
    decoder = None if whole.multiply_adds is None or encoder is None else whole.multiply_adds - encoder
    macs = {"macs_per_source_token": _share(encoder, tokens), "macs_per_target_token": _share(decoder, tokens)}
    return macs, whole.unknown


def _share(multiply_adds: int | None, tokens: int) -> int | float | None:
    if multiply_adds is None:
        return None
    return multiply_adds // tokens if multiply_adds % tokens == 0 else multiply_adds / tokens


def _cache(model: Architecture, tokens: int) -> int | None:
    """Bytes per token, measured at a length of 16 or, for a shorter model, at its own."""
    if "cache" not in model.offers or tokens < 2:
        return None
    return cache_bytes(model, min(16, tokens - 1))
