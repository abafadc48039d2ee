"""From an amount of compute to a recipe: how large a model, on how much data, how long, and in how much memory."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.contracts.data import Description
from zoo.errors import UserError
from zoo.info import Information, information
from zoo.recipe import Recipe
from zoo.recipe.find import RecipeFolders
from zoo.recipe.merge import read_override
from zoo.recipe.source import write_text
from zoo.scaling.devices import DEVICES, UTILISATION, Device
from zoo.scaling.law import FLOPS_PER_PARAMETER_AND_TOKEN, Allocation
from zoo.scaling.outlook import FARTHEST
from zoo.scaling.request import Machine, Rule
from zoo.scaling.shapes import Shape, find_shape

SMALLEST_RUN = 1e17
"""FLOPs from which on batch and learning rate are set. Bi et al. 2024 (DeepSeek LLM), section 3.1, arXiv:2401.02954,
fitted runs of 1e17 to 2e19 FLOPs: 0.2920 C^0.3271 tokens a step, a learning rate of 0.3118 C^-0.1250."""
TOKENS_AT_ONCE = 8192
"""Tokens in one forward pass of a device."""
VALIDATIONS = 50
WARMUP = 2000  # steps, at most; and at most 2 % of the run


def make_plan(
    recipe: Recipe,
    description: Description | None,
    flops: float,
    rule: Rule,
    *,
    machine: Machine | None = None,
    utilisation: float = UTILISATION,
    train_tokens: int | None = None,
) -> dict[str, Any]:
    """What to train with some compute.

    Args:
        recipe: whose model is given other sizes, see ``find_shape``; a preset is enough.
        description: sizes of its data, where its architecture leaves some null.
        flops: to be spent, 6 N D.
        rule: how size and data share them.
        machine: the device to plan for; by default all that are known.
        utilisation: share of its peak.
        train_tokens: what its data has, where that is known.

    Returns:
        Plain values; ``recipe`` is what a YAML file says.

    Raises:
        UserError: a model that the laws aren't about, or none of that size.
    """
    check_causal(recipe)
    wanted = rule.allocate(flops)
    shape = find_shape(recipe, description, wanted.parameters, rule.counted)
    size = shape.parameters.of(rule.counted)
    tokens = flops / FLOPS_PER_PARAMETER_AND_TOKEN / size
    length = _length(recipe, description)
    changes = {"architecture": shape.changes, **_training(recipe, flops, tokens, length)}
    facts = information(_changed(recipe, changes), description)
    steps = changes["trainer"]["max_steps"]
    rows = changes["data"]["batch_size"]
    macs = facts.macs.get("macs_per_token")
    machines = {machine.name: machine.device} if machine else DEVICES
    return {
        "flops": flops,
        "rule": rule.said,
        "counted": rule.counted,
        "best": {"parameters": wanted.parameters, "tokens": wanted.tokens},
        "shape": {"layers": shape.layers, "dim": shape.dim, "heads": shape.heads},
        "parameters": shape.parameters.total,
        "without_embeddings": shape.parameters.total - shape.parameters.embedding,
        "tokens": steps * rows * length,
        "steps": steps,
        "tokens_per_step": rows * length,
        "flops_counted": None if macs is None else 6 * macs * steps * rows * length,
        "epochs": None if not train_tokens else steps * rows * length / train_tokens,
        "loss": None if rule.law is None else rule.law.loss(float(size), tokens),
        "memory_bytes": facts.memory_bytes,
        "memory_of": {"rows": facts.rows, "tokens": facts.tokens, "dtype": facts.dtype},
        "utilisation": utilisation,
        "devices": [_on(name, device, flops, utilisation, facts) for name, device in machines.items()],
        "recipe": changes,
        "notes": _notes(rule, shape, size, wanted, tokens, train_tokens),
    }


def check_causal(recipe: Recipe) -> None:
    """Refuse a model that the laws aren't about.

    Raises:
        UserError: it isn't causal, reads a source, or isn't one of tokens.
    """
    architecture, embedding = recipe.component("architecture"), recipe.component("architecture.embedding")
    offers = architecture.load().offers
    if "causal" not in offers or "cross" in offers or "tokens" not in embedding.load().offers:
        raise UserError(
            f"the laws are of causal models of tokens; {recipe.name} is {architecture.name} over {embedding.name}",
            where="--recipe",
            fix="name another, such as --recipe gpt2",
        )


def _length(recipe: Recipe, description: Description | None) -> int:
    length = (description and description.max_length) or recipe.config("architecture").max_length
    if _names(recipe, "data"):
        length = getattr(recipe.config("data"), "length", None) or length
    if length is None:
        raise UserError(
            "the length of a row isn't known",
            where=recipe.where("architecture"),
            fix="set it in the recipe, for example architecture.max_length: 1024",
        )
    return int(length)


def _names(recipe: Recipe, section: str) -> bool:
    """Whether a recipe says which component a section is; a preset needn't."""
    return "name" in recipe.tree.get(section, {})


def _training(recipe: Recipe, flops: float, tokens: float, length: int) -> dict[str, Any]:
    """How long, in which batches and how fast: what a recipe says beside the architecture."""
    is_small = flops < SMALLEST_RUN and _names(recipe, "data")
    rows = recipe.config("data").batch_size if is_small else max(1, round(0.2920 * flops**0.3271 / length))
    steps = max(1, round(tokens / rows / length))
    at_once = max(1, TOKENS_AT_ONCE // length)
    every = max(recipe.training.validate_every, math.ceil(steps / VALIDATIONS))
    changes: dict[str, Any] = {"data": {"batch_size": rows}, "trainer": {"max_steps": steps}}
    changes["training"] = {"validate_every": every, "save_every": every}
    if rows > at_once:
        changes["training"]["micro_batch_size"] = at_once
    if not is_small:
        changes["optimizer"] = {"lr": float(f"{0.3118 * flops**-0.1250:.3g}")}
    if hasattr(recipe.config("schedule"), "warmup_steps"):
        changes["schedule"] = {"warmup_steps": min(WARMUP, steps // 50)}
    return changes


def _changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with changes on top; a preset takes those of its architecture and of its training alone."""
    kept = {key: value for key, value in changes.items() if key in recipe.tree}
    return recipe.with_overrides(*[f"{key}={json.dumps(value)}" for key, value in _flat(kept)])


def _flat(values: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        found += _flat(value, f"{path}{key}.") if isinstance(value, Mapping) else [(f"{path}{key}", value)]
    return found


def _on(name: str, device: Device, flops: float, utilisation: float, facts: Information) -> dict[str, Any]:
    """How long one device takes, and whether it holds the run: all of it, or how many a share of it."""
    memory = facts.memory_bytes
    state = None if None in memory.values() else sum(memory[key] or 0 for key in ("weights", "gradients", "optimizer"))
    room = device.memory - (memory["activations"] or 0)
    least = None if state is None or not device.memory or room <= 0 else max(1, math.ceil(state / room))
    return {
        "name": name,
        "title": device.title,
        "peak": device.peak,
        "memory": device.memory or None,
        "hours": flops / device.peak / utilisation / 3600,
        "least_devices": least,
    }


def _notes(
    rule: Rule, shape: Shape, size: int, wanted: Allocation, tokens: float, train_tokens: int | None
) -> list[str]:
    notes = []
    if rule.fitted is not None:
        parameters, amounts = rule.fitted["parameters"], rule.fitted["tokens"]
        beyond = max(size / parameters[1], parameters[0] / size, tokens / amounts[1], amounts[0] / tokens)
        if beyond > FARTHEST:
            notes.append(f"this is {beyond:,.0f} times beyond the runs that the law was fitted to: a guess")
    if abs(size / wanted.parameters - 1) > 0.05:
        notes.append(f"the nearest model is {size / wanted.parameters - 1:+.0%} off; the tokens make up for it")
    share = shape.parameters.embedding / shape.parameters.total
    if share > 0.5:
        notes.append(f"{share:.0%} of the parameters are embeddings; a smaller vocabulary leaves more for layers")
    if train_tokens and tokens > 4 * train_tokens:
        # Muennighoff et al. 2023, "Scaling data-constrained language models", arXiv:2305.16264
        notes.append(
            f"the data has {train_tokens:,} tokens for training, so each is seen {tokens / train_tokens:,.0f} times; "
            "beyond about 4 times the laws don't hold"
        )
    return notes


def recipe_text(recipe: Recipe, overrides: Sequence[str], plan: Mapping[str, Any], folder: Path) -> str:
    """The recipe of a plan, as a file in a folder has it.

    Args:
        recipe: what was given other sizes.
        overrides: of the command line, which are in it.
        plan: what ``make_plan`` returned.
        folder: of the file.
    """
    said: dict[str, Any] = {"base": _base(recipe, folder)}
    if recipe.plugins:
        said["plugins"] = list(map(str, recipe.plugins))
    for number, text in enumerate(overrides, start=1):
        said = _merged(said, read_override(text, number).plain())
    lines = [f"# {line}" for line in _head(recipe, plan)]
    return "\n".join(lines) + "\n" + write_text(_merged(said, plan["recipe"]))


def _merged(below: Any, above: Any) -> Any:
    """Mappings key by key; a name alone is the mapping that it is short for."""
    if isinstance(above, Mapping) and isinstance(below, str):
        below = {"name": below}
    if isinstance(above, Mapping) and isinstance(below, Mapping):
        return {**below, **{key: _merged(below.get(key), value) for key, value in above.items()}}
    return above


def _head(recipe: Recipe, plan: Mapping[str, Any]) -> list[str]:
    lines = [f"{plan['parameters']:,} parameters, {plan['tokens']:,} tokens: {plan['flops']:.4g} FLOPs (6 N D)."]
    lines.append(f"Made by zoo plan, by {plan['rule']}.")
    if missing := [key for key in ("data", "task") if not _names(recipe, key)]:
        lines.append(f"To train it, name {' and '.join(missing)}: {recipe.name} is a preset, which has none.")
    return lines


def _base(recipe: Recipe, folder: Path) -> str:
    """How a recipe in a folder names another: an installed one by its name, else by the way to its file."""
    assert recipe.file is not None
    for installed in RecipeFolders(recipe.registry).folders:
        if recipe.file.is_relative_to(installed.resolve()):
            return recipe.file.relative_to(installed.resolve()).with_suffix("").as_posix()
    return os.path.relpath(recipe.file, folder)
