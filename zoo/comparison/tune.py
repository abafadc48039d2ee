"""The point of the tuning grid that each variant is reported at: the best one on the validation part.

Every variant gets the same grid and the same seeds of its own; what is reported has other seeds and the test part, so
that choosing costs nothing in honesty. A best value at an edge of the grid may not be the best one there is, and is
flagged.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from zoo.comparison.cells import Cell
from zoo.comparison.verdicts import first_metric
from zoo.recipe import Comparison


@dataclasses.dataclass(frozen=True)
class Choice:
    """What was chosen for a variant on a task.

    Attributes:
        point: values by key path; empty where no run of the grid completed.
        value: the metric there, a mean over the tuning seeds.
        runs: how many were made to choose it.
        edges: key paths whose chosen value is the least or largest of several that were tried.
    """

    point: Mapping[str, Any]
    value: float | None
    runs: int
    edges: tuple[str, ...]

    def line(self) -> str:
        """``optimizer.lr=0.002, of 3 runs; 0.002 is at the edge of what was tried``, for people."""
        if not self.point:
            return f"none of {self.runs} runs completed"
        said = ", ".join(f"{key}={value}" for key, value in self.point.items())
        edges = "".join(f"; {key} is at the edge of what was tried, a wider grid may hold better" for key in self.edges)
        return f"{said}, of {self.runs} runs{edges}"


def choices(comparison: Comparison, cells: Sequence[Cell]) -> dict[tuple[str, str], Choice]:
    """What is chosen for each variant on each task, by its validation part.

    Args:
        comparison: what is tuned.
        cells: all of them; those of phase ``tune`` count.
    """
    grid = {key: [node.plain() for node in nodes] for key, nodes in comparison.tune.items()}
    places: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.phase == "tune":
            places.setdefault((cell.variant, cell.task), []).append(cell)
    metrics = {task: first_metric(task, cells) for _, task in places}
    return {place: choose(tried, *metrics[place[1]], grid) for place, tried in places.items()}


def choose(
    cells: Sequence[Cell], metric: str, better: Literal["lower", "higher"], grid: Mapping[str, Sequence[Any]]
) -> Choice:
    """The best point of one variant on one task.

    Args:
        cells: of phase ``tune``, all seeds of all points; a point that didn't complete with every seed isn't chosen.
        metric: of the validation part.
        better: which way is better.
        grid: all values that were tried, by key path.
    """
    by_point: dict[tuple[tuple[str, Any], ...], list[float]] = {}
    for cell in cells:
        value = cell.metrics.get(metric, math.nan) if cell.status == "completed" else math.nan
        by_point.setdefault(tuple(cell.point.items()), []).append(value)
    means = {point: math.fsum(values) / len(values) for point, values in by_point.items()}
    finite = {point: mean for point, mean in means.items() if math.isfinite(mean)}
    if not finite:
        return Choice({}, None, len(cells), ())
    pick = min if better == "lower" else max
    best = pick(finite, key=lambda point: finite[point])  # of equal ones the first
    edges = tuple(key for key, value in best if is_edge(value, grid[key]))
    return Choice(dict(best), finite[best], len(cells), edges)


def is_edge(value: Any, tried: Sequence[Any]) -> bool:
    """Whether a number is the least or the largest of several that were tried."""
    numbers = [one for one in tried if isinstance(one, int | float) and not isinstance(one, bool)]
    return len(numbers) == len(tried) > 1 and value in (min(numbers), max(numbers))
