"""Cells of comparisons that never ran: a loss for each seed of each variant, and what a comparison is around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from zoo.comparison.cells import Cell

PLAIN = [2.0, 2.1, 2.3, 2.2]


class Recipe:
    """Whatever is asked of it, its task measures a loss first."""

    metrics: Mapping[str, str] = {"loss": "lower", "accuracy": "higher"}

    def with_seed(self, seed: int) -> Recipe:
        return self

    def component(self, key: str) -> Recipe:
        return self

    def load(self) -> Recipe:
        return self


def comparison(*variants: str, tasks: Sequence[str] = ("text",), **more: Any) -> Any:
    terms = {"tune": {}, "equivalence": {}, "verdicts": True, **more}
    names = {name: {} for name in ("plain", *variants)}
    return SimpleNamespace(variants=names, tasks=dict.fromkeys(tasks), baseline="plain", **terms)


def row(variant: str, values: Sequence[float | str | None], task: str = "text", wall_s: float = 60.0) -> list[Cell]:
    """A cell for each loss; a status in place of one that has none."""
    cells = []
    for seed, value in enumerate(values):
        status: Any = value if isinstance(value, str) else "completed"
        metrics = {} if isinstance(value, str) or value is None else {"val_loss": value, "val_accuracy": 1 - value / 10}
        result = {"metrics": metrics, "wall_s": wall_s}
        cells.append(Cell(variant, task, seed, Recipe(), "abc", status=status, result=result))  # type: ignore[arg-type]
    return cells


def shifted(*by: float) -> list[float]:
    return [value + shift for value, shift in zip(PLAIN, by, strict=True)]


BETTER = shifted(-0.5, -0.52, -0.51, -0.49)
WORSE = shifted(0.5, 0.52, 0.51, 0.49)
CLOSE = shifted(0.01, -0.012, 0.002, 0.004)
