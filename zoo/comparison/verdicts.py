"""What a comparison found: each variant against the baseline on each task, by the task's first metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from zoo.comparison.cells import Cell
from zoo.comparison.statistics import CONFIDENCE, decide, paired
from zoo.recipe import Comparison


def verdicts(comparison: Comparison, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """A verdict, as plain values, for each task and variant but the baseline.

    A variant that didn't complete a seed that the baseline completed is never better by those that are left, and
    the other way round never worse.
    """
    found = []
    for task in comparison.tasks:
        metric = first_metric(task, cells)
        rows = {
            variant: {cell.seed: cell for cell in cells if (cell.variant, cell.task) == (variant, task)}
            for variant in comparison.variants
        }
        for variant in comparison.variants:
            if variant != comparison.baseline:
                verdict = _verdict(rows[variant], rows[comparison.baseline], *metric)
                found.append({"task": task, "variant": variant, "baseline": comparison.baseline, **verdict})
    return found


def first_metric(task: str, cells: Sequence[Cell]) -> tuple[str, Literal["lower", "higher"]]:
    """Name and direction of the first metric of a task's cells, as measured on the validation part."""
    recipe = next((cell.recipe for cell in cells if cell.task == task and cell.recipe), None)
    if recipe is None:
        return "", "lower"
    name, better = next(iter(recipe.component("task").load().metrics.items()))
    return f"val_{name}", better


def _verdict(
    variant: dict[int, Cell], baseline: dict[int, Cell], metric: str, better: Literal["lower", "higher"]
) -> dict[str, Any]:
    values, against = _values(variant, metric), _values(baseline, metric)
    seeds = [seed for seed in values if seed in against]
    result = paired([values[seed] for seed in seeds], [against[seed] for seed in seeds])
    verdict = decide(result.low, result.high, better)
    lost = _lost(variant, metric, against), _lost(baseline, metric, values)
    if (verdict == "better" and lost[0]) or (verdict == "worse" and lost[1]):
        verdict = "undecided"
    notes = [result.note, *(f"{who}: {what}" for who, what in zip(("variant", "baseline"), lost, strict=True) if what)]
    return {
        "metric": metric or None,
        "difference": result.difference,
        "low": result.low,
        "high": result.high,
        "p": result.p,
        "p_adjusted": None,
        "confidence": CONFIDENCE,
        "margin": None,
        "seeds": result.seeds,
        "seeds_needed": None,
        "minutes_needed": None,
        "verdict": verdict,
        "note": "; ".join(filter(None, notes)),
    }


def _values(cells: dict[int, Cell], metric: str) -> dict[int, float]:
    """The metric by seed, of cells that completed with a finite one."""
    found = {seed: cell.metrics.get(metric) for seed, cell in cells.items() if cell.status == "completed"}
    return {seed: value for seed, value in found.items() if value is not None and math.isfinite(value)}


def _lost(cells: dict[int, Cell], metric: str, other: dict[int, float]) -> str:
    """Seeds that only the other side has a value for, with what became of them: ``2 diverged``."""
    own = _values(cells, metric)
    states = [
        cell.status if cell.status != "completed" else f"without a finite {metric}"
        for seed, cell in cells.items()
        if seed in other and seed not in own
    ]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
