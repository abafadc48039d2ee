"""How much of something a model has: what variants can be matched in, and the analytic columns of costs.csv.

Everything is counted on the meta device, as ``zoo info`` counts it: shapes are computed, nothing is stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from zoo.builder import build_model
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Description
from zoo.errors import UserError
from zoo.generation import has_cache
from zoo.info.memory import held_bytes
from zoo.info.parameters import parts
from zoo.info.summary import multiply_adds, parameter_dtype, sequence_length
from zoo.recipe import Recipe

QUANTITIES: Mapping[str, str] = MappingProxyType(
    {
        "parameters": "parameters, each once, embeddings included",
        "macs": "multiply-adds of a forward pass, head included, for each token or image",
        "cache_bytes": "bytes by which the cache of one sequence grows with a token, at the data's length",
        "state": "bytes of that cache that don't grow with the length",
    }
)
"""What can be matched, and what it means."""


def measure(recipe: Recipe, quantity: str, description: Description | None = None) -> float:
    """How much a recipe's model has.

    Args:
        recipe: a checked recipe.
        quantity: a key of ``QUANTITIES``.
        description: sizes of the data, for those that the architecture leaves null.

    Raises:
        UserError: the model can't be built, or has no such quantity.
    """
    model = empty_model(recipe, description)
    if quantity == "parameters":
        return sum(parameter.numel() for parameter in model.parameters())
    tokens = sequence_length(recipe, model, description)
    if quantity == "macs":
        count, unknown = macs(model, tokens)
        if count is None:
            raise UserError(
                f"the multiply-adds of {recipe.name} aren't known: there is no formula for {', '.join(unknown)}",
                where=recipe.where("architecture"),
                fix="match parameters instead",
            )
        return count
    memory = remembered(model, tokens)
    if memory is None:
        raise UserError(
            f"{recipe.name} generates with no cache, so it has no {quantity} to match",
            where=recipe.where("architecture"),
            fix="match parameters or macs instead",
        )
    return memory[quantity]


def counts(recipe: Recipe, description: Description | None = None) -> dict[str, float | None]:
    """Every quantity of a recipe's model, and how its parameters are made up; ``None`` where there is none of it,
    or where it isn't known."""
    model = empty_model(recipe, description)
    tokens = sequence_length(recipe, model, description)
    embedding = sum(part.parameters for part in parts(model, {}) if part.embeds)
    total = sum(parameter.numel() for parameter in model.parameters())
    return {
        "parameters": total,
        "parameters_embedding": embedding,
        "parameters_other": total - embedding,
        "parameters_trainable": sum(each.numel() for each in model.parameters() if each.requires_grad),
        "macs": macs(model, tokens)[0],
        **(remembered(model, tokens) or {"cache_bytes": None, "state": None}),
    }


def empty_model(recipe: Recipe, description: Description | None) -> Architecture:
    """The model of a recipe, on the meta device."""
    return build_model(recipe, description, device="meta").to(parameter_dtype(recipe)).eval()


def macs(model: Architecture, tokens: int) -> tuple[float | None, list[str]]:
    """Multiply-adds of one token or image, those of a source token included where there are sources, and operations
    that have no formula, for which there is no number then."""
    found, unknown = multiply_adds(model, tokens)
    counted = [count for count in found.values() if count is not None]
    return (sum(counted) if len(counted) == len(found) else None), unknown


def remembered(model: Architecture, tokens: int) -> dict[str, float] | None:
    """``cache_bytes`` and ``state`` of a sequence of so many tokens: what its cache holds is taken as state + length x
    cache_bytes, from its last two lengths. A window that is shorter than the sequence is state, and so is all that is
    kept of a source, which is as long.

    ``None`` where nothing is generated, or without a cache.
    """
    if "cache" not in model.offers or "patches" in model.embedding.offers or tokens < 2 or not has_cache(model):
        return None
    before, after = held_bytes(model, tokens - 1, tokens), held_bytes(model, tokens, tokens)
    growth = after - before
    return {"cache_bytes": growth, "state": after - tokens * growth}


def identity(recipe: Recipe, description: Description | None) -> str:
    """A text that is the same for recipes whose models have as much of everything, though they train differently."""
    said = [recipe.tree["architecture"], recipe.trainer.get("precision"), vars(description) if description else None]
    return json.dumps(said, sort_keys=True, default=str)
