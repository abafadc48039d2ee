"""What each cell costs: counted from its recipe, and measured while it ran and after.

Counted figures are the same whenever the recipe is, and stand in results.csv too; measured ones depend on the machine
and on what else it did, and stand in costs.csv alone. What a machine can't report is left empty, never 0, and an
operation for which there is no formula makes ``macs`` n/a.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from zoo.comparison.cells import Cell
from zoo.comparison.meters import Readings, on_gpu, read_meters, spent
from zoo.comparison.quantities import counts
from zoo.comparison.rows import csv_text, ordered, place, places
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Description
from zoo.contracts.head import TokenHead
from zoo.errors import RunFailed, UserError
from zoo.generation import can_generate, generate, has_cache
from zoo.recipe import Recipe
from zoo.training.metrics import read_metrics
from zoo.training.run import RunFolder, load_run

__all__ = ["COUNTED", "MEASURED", "costs_csv", "measure_costs", "read_meters", "size_warnings", "unequal"]

COUNTED: Mapping[str, str] = MappingProxyType(
    {
        "parameters": "all parameters, each once",
        "parameters_embedding": "those of the tables of tokens and positions",
        "parameters_other": "those that are in no such table",
        "parameters_trainable": "those that get a gradient",
        "macs": "multiply-adds of a forward pass, head included, for each token or image; n/a: an operation is unknown",
        "cache_bytes": "bytes by which the cache of one sequence grows with a token, at the data's length",
        "state": "bytes of that cache that don't grow",
    }
)
"""Figures that follow from a recipe and the sizes of its data."""

MEASURED: Mapping[str, str] = MappingProxyType(
    {
        "train_tokens_per_s": "the median over stretches of the run that hold neither a validation nor a checkpoint",
        "generate_tokens_per_s": "new tokens of one sequence, greedily, cached, the reading of the prompt included",
        "peak_bytes": "on a GPU what torch had allocated at most; else by how much the process grew at most",
        "wall_s": "training with its validations",
        "energy_cpu_j": "of all processor packages of the machine, whoever used them; none for a run that went on",
        "energy_gpu_j": "of the GPU that trained, likewise",
    }
)
"""Figures of the machine."""

UNKNOWN = "n/a"
"""Stands for multiply-adds where an operation has no formula: they are no 0, and not what can't be measured here."""

PROMPT, NEW = 16, 64
"""Tokens of a prompt, and of what is generated behind it, at most."""
LEAST_SECONDS = 0.2
"""Generation is repeated for so long."""

DIFFERENCE = 0.05
"""Variants that differ by more than this share in their parameters are worth a warning."""


def measure_costs(recipe: Recipe, run_folder: Path, before: Readings | None = None) -> dict[str, float | None]:
    """What a run has cost, right after it, in the process that trained.

    Args:
        recipe: of the run.
        run_folder: the run's, complete or not.
        before: the meters as they stood before training, see ``read_meters``; without them no memory and no energy.

    Returns:
        Every key of ``COUNTED`` and ``MEASURED``; ``None`` where there is no such figure.
    """
    folder = RunFolder(run_folder)
    used = spent(before) if before else {}  # first: what follows takes memory and energy of its own
    wall = _wall(folder)
    if before and wall and wall > time.monotonic() - before.seconds:  # it went on from an earlier start
        used |= {"energy_cpu_j": None, "energy_gpu_j": None}
    try:
        counted = counts(recipe, _description(folder))
    except UserError:  # a run that never began has no sizes
        counted = {}
    found = {**counted, "train_tokens_per_s": training_rate(folder, recipe), "wall_s": wall, **used}
    found["generate_tokens_per_s"] = generation_rate(folder, recipe)
    return {name: found.get(name) for name in (*COUNTED, *MEASURED)}


def _description(folder: RunFolder) -> Description:
    sizes: dict[str, Any] = folder.locked()["sizes"] if folder.lock.is_file() else {}
    sizes = {name: tuple(size) if isinstance(size, list) else size for name, size in sizes.items()}
    return Description(**sizes)


def _wall(folder: RunFolder) -> float | None:
    if not folder.result.is_file():
        return None
    found: float | None = json.loads(folder.result.read_text(encoding="utf-8")).get("wall_s")
    return found


def training_rate(folder: RunFolder, recipe: Recipe) -> float | None:
    """Tokens a second of training; ``None`` where no stretch of the run was without something else.

    The first stretch, in which everything is done for the first time, doesn't count.
    """
    rows = read_metrics(folder.metrics) if folder.metrics.is_file() else []
    rates = []
    for begin, end in itertools.pairwise(rows):
        is_validated = any(name.startswith("val_") for name in end)
        is_saved = begin["step"] % recipe.training.save_every == 0
        if not is_validated and not is_saved and end["wall_s"] > begin["wall_s"]:
            rates.append((end["tokens"] - begin["tokens"]) / (end["wall_s"] - begin["wall_s"]))
    return statistics.median(rates) if rates else None


def generation_rate(folder: RunFolder, recipe: Recipe) -> float | None:
    """Tokens a second of generation by the run's last weights, on the device that trained; ``None`` where they
    generate nothing, or with no cache."""
    if not folder.weights.is_file():
        return None
    try:
        model = load_run(folder.path, registry=recipe.registry).model
        if not can_generate(model) or not has_cache(model):
            return None
        return _timed_generation(model.to("cuda" if on_gpu(recipe) else "cpu"))
    except (UserError, RunFailed):  # its scores aren't finite, for example
        return None


def _timed_generation(model: Architecture) -> float:
    assert isinstance(model.head, TokenHead)
    vocabulary, longest = len(model.head.weight), model.max_length or PROMPT + NEW
    length = max(1, min(PROMPT, longest // 2))
    prompt = [place % vocabulary for place in range(length)]
    sources = [prompt[: model.max_source]] if "cross" in model.offers else None

    def run(tokens: int) -> int:
        made = generate(model, [prompt], sources=sources, max_new_tokens=tokens, temperature=0)
        return len(made[0].tokens)

    run(4)  # whatever happens for the first time
    tokens, began = 0, _clock()
    while (passed := _clock() - began) < LEAST_SECONDS:
        tokens += run(NEW)
    return tokens / passed


def _clock() -> float:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


# Tables ----------------------------------------------------------------------------------------------------------


def counted_by_place(cells: Iterable[Cell]) -> dict[tuple[str, str, str], dict[str, float | None]]:
    """What was counted for some seed holds for all: a run that was lost, or failed, leaves no gap in a table."""
    found: dict[tuple[str, str, str], dict[str, float | None]] = {}
    for cell in cells:
        if cell.costs and (at := place(cell)) not in found:
            found[at] = {name: cell.costs.get(name) for name in COUNTED}
    return found


def costs_csv(cells: Iterable[Cell]) -> str:
    """The text of costs.csv, a row for each cell."""
    cells = ordered(cells)
    columns, rows = places(cells)
    others = sorted({name for cell in cells for name in cell.costs} - {*COUNTED, *MEASURED})
    names = [*COUNTED, *MEASURED, *others]
    counted = counted_by_place(cells)
    for cell, row in zip(cells, rows, strict=True):
        row |= {**cell.costs, **told(counted.get(place(cell), {}))}
    return csv_text([*columns, *names], rows)


def told(counted: Mapping[str, float | None]) -> dict[str, Any]:
    """The same with n/a for multiply-adds that were counted and aren't known."""
    return {name: UNKNOWN if name == "macs" and count is None else count for name, count in counted.items()}


def size_warnings(cells: Iterable[Cell], *, matched: bool) -> list[str]:
    """What to say of cells whose variants aren't of one size; nothing where a match was asked for.

    Args:
        cells: with their costs, or at least with the number of parameters in their result.
        matched: whether the comparison has a ``match``.
    """
    if matched:
        return []
    sizes: dict[str, dict[str, float]] = {}
    for cell in cells:
        count = cell.costs.get("parameters", cell.result.get("parameters"))
        if cell.phase == "report" and count is not None:
            sizes.setdefault(cell.task, {})[cell.variant] = count
    return unequal(sizes)


def unequal(sizes: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A line for each task whose variants differ by more than 5 % in their parameters.

    Args:
        sizes: parameters by variant, by task.
    """
    lines = []
    for task, counted in sizes.items():
        least, most = (pick(counted, key=lambda variant: counted[variant]) for pick in (min, max))
        if counted[most] > (1 + DIFFERENCE) * counted[least]:
            lines.append(
                f"{task}: variants aren't of one size: {most} has {counted[most]:,} parameters, "
                f"{counted[most] / counted[least] - 1:.0%} more than {least} with {counted[least]:,}; "
                "compare.match={parameters: VARIANT} makes them equal"
            )
    return lines
