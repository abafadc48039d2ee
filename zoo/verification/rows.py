"""Two files of metrics, step by step: where they begin to differ, and by how much."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo.training.metrics import Row, read_metrics

CLOCK = ("step", "wall_s")
"""Columns that say when a row was written; the second is never the same twice."""


class Mismatch(NamedTuple):
    """A column of one step in which two runs differ."""

    column: str
    first: float
    second: float

    @property
    def relative(self) -> float | None:
        """Difference as a share of the larger value; ``None`` where one isn't finite."""
        return relative(self.first, self.second)


@dataclasses.dataclass(frozen=True)
class RowsDifference:
    """How the rows of two runs compare.

    Attributes:
        shared: steps that both have a row for.
        equal_to: the last of them before the first difference; ``None`` if there is none.
        step: the first step that differs; ``None`` if none does.
        mismatches: its columns that differ, in the order of the file.
        alone: how many rows only the first, and only the second run has.
        ends: steps of their last rows; ``None`` for a run without rows.
    """

    shared: int
    equal_to: int | None
    step: int | None
    mismatches: list[Mismatch]
    alone: tuple[int, int]
    ends: tuple[int | None, int | None]

    def json(self) -> dict[str, Any]:
        """Plain values."""
        columns = [{**each._asdict(), "relative": each.relative} for each in self.mismatches]
        first = None if self.step is None else {"step": self.step, "columns": columns}
        return {
            "shared": self.shared,
            "equal_to": self.equal_to,
            "first_difference": first,
            "alone": list(self.alone),
            "last_steps": list(self.ends),
        }


def read_rows(file: Path) -> list[Row]:
    """Rows of a metrics.csv; none where there is no such file."""
    return read_metrics(file) if file.is_file() else []


def compare_rows(first: Sequence[Row], second: Sequence[Row]) -> RowsDifference:
    """Compare the values that both runs have, to the last bit.

    Runs that were logged or validated at other steps share some of their values; what only one of them measured
    says nothing about the other.
    """
    ours, theirs = ({int(row["step"]): row for row in rows} for rows in (first, second))
    equal_to, found = None, None
    for step in sorted(ours.keys() & theirs.keys()):
        if mismatches := _mismatches(ours[step], theirs[step]):
            found = (step, mismatches)
            break
        equal_to = step
    return RowsDifference(
        shared=len(ours.keys() & theirs.keys()),
        equal_to=equal_to,
        step=found and found[0],
        mismatches=found[1] if found else [],
        alone=(len(ours.keys() - theirs.keys()), len(theirs.keys() - ours.keys())),
        ends=(max(ours, default=None), max(theirs, default=None)),
    )


def _mismatches(first: Row, second: Row) -> list[Mismatch]:
    shared = [column for column in first if column in second and column not in CLOCK]
    pairs = [Mismatch(column, first[column], second[column]) for column in shared]
    return [
        pair for pair in pairs if repr(float(pair.first)) != repr(float(pair.second))
    ]  # nan is itself, -0.0 isn't 0.0


def relative(first: float, second: float) -> float | None:
    """Difference of two numbers as a share of the larger; ``None`` where that is none."""
    if not (math.isfinite(first) and math.isfinite(second)):
        return None
    largest = max(abs(first), abs(second))
    return abs(first - second) / largest if largest else 0.0
