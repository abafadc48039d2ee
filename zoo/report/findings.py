"""What the files of a comparison's folder say, task by task; a comparison that is still running says less."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from zoo.errors import UserError
from zoo.report.caps import TASKS, VARIANTS
from zoo.report.runs import run_folder
from zoo.report.trees import read_tree

Cell = Mapping[str, Any]
"""A cell as results.json has it."""


@dataclasses.dataclass
class Entry:
    """A variant on a task.

    Attributes:
        variant, task: its place.
        cells: those that are reported, one for each seed.
        tuning: those that a point of the tuning grid was chosen by.
        verdict: as results.json has it; none for the baseline.
    """

    variant: str
    task: str
    cells: list[Cell] = dataclasses.field(default_factory=list)
    tuning: list[Cell] = dataclasses.field(default_factory=list)
    verdict: Mapping[str, Any] | None = None

    def values(self, metric: str) -> list[float]:
        """A metric of the cells that completed with a finite one."""
        return _finite(cell["metrics"].get(metric) for cell in self.cells if cell["status"] == "completed")

    def mean(self, metric: str) -> float | None:
        """Mean of ``values``."""
        values = self.values(metric)
        return statistics.fmean(values) if values else None

    def spread(self, metric: str) -> float | None:
        """Standard deviation of ``values``, of which it takes two."""
        values = self.values(metric)
        return statistics.stdev(values) if len(values) > 1 else None

    def cost(self, name: str) -> float | None:
        """Mean of a cost over the cells that completed and have it."""
        values = _finite(cell["costs"].get(name) for cell in self.cells if cell["status"] == "completed")
        if len(set(values)) < 2:
            return values[0] if values else None  # a count stays whole
        return statistics.fmean(values)


@dataclasses.dataclass
class TaskFindings:
    """A task with every variant on it.

    Attributes:
        name: of the task.
        metric: what its verdicts are about; empty where nothing was measured.
        better: which way of it is; ``None`` where no verdict says so.
        baseline: the variant that the others are held against.
        entries: by variant, in the order of the comparison.
    """

    name: str
    metric: str
    better: Literal["lower", "higher"] | None
    baseline: str
    entries: dict[str, Entry]

    @property
    def validated(self) -> str:
        """The metric on the validation part, which is measured while a run goes on and serves to tune."""
        return f"val_{self.metric.removeprefix('test_')}" if self.metric.startswith("test_") else self.metric

    def drawn(self) -> list[Entry]:
        """Entries that have a place in figures: all of them, or the baseline and the best ones, in their order."""
        if len(self.entries) <= VARIANTS:
            return [*self.entries.values()]
        sign = -1 if self.better == "higher" else 1
        means = {name: entry.mean(self.metric) for name, entry in self.entries.items()}

        def rank(name: str) -> tuple[bool, bool, float]:
            mean = means[name]
            return (name != self.baseline, mean is None, 0.0 if mean is None else sign * mean)

        kept = {*sorted(self.entries, key=rank)[:VARIANTS]}
        return [entry for name, entry in self.entries.items() if name in kept]

    def of_verdicts(self, name: str) -> float | None:
        """A number that is the same in all verdicts of this task that have it."""
        found = _finite(entry.verdict.get(name) for entry in self.entries.values() if entry.verdict)
        return found[0] if found else None


@dataclasses.dataclass
class Findings:
    """All that a report is made from.

    Attributes:
        folder: of the comparison.
        document: results.json.
        comparison: comparison.yaml.
        tasks: those that are reported on.
        all_tasks: how many there are.
        variants: names, in the order of the comparison.
    """

    folder: Path
    document: Mapping[str, Any]
    comparison: Mapping[str, Any]
    tasks: list[TaskFindings]
    all_tasks: int
    variants: list[str]

    @property
    def name(self) -> str:
        """Of the comparison: the stem of its recipe."""
        return Path(self.comparison.get("recipe") or self.folder).stem

    @property
    def cells(self) -> Sequence[Cell]:
        """All of them, those of tuning too."""
        return self.document["cells"]

    def run(self, cell: Cell) -> Path | None:
        """The folder of a cell's run; ``None`` where there is none."""
        return run_folder(self.folder, cell)


def read_findings(folder: Path) -> Findings:
    """Read a folder.

    Raises:
        UserError: no comparison is there.
    """
    document = _read_json(folder / "results.json")
    said = folder / "comparison.yaml"
    if document is None and not said.is_file():
        raise UserError(f"{folder} is no comparison: it has no comparison.yaml", fix="give the folder of a comparison")
    document = {"cells": [], "verdicts": [], **(document or {})}
    comparison = read_tree(said)
    entries = _entries(document)
    tasks = [*dict.fromkeys([*(comparison.get("tasks") or []), *(task for task, _ in entries)])]
    variants = [*dict.fromkeys([*(comparison.get("variants") or {}), *(variant for _, variant in entries)])]
    by_task: dict[str, dict[str, Entry]] = {task: {} for task in tasks}
    for (task, variant), entry in entries.items():
        by_task[task][variant] = entry
    found = [_task(task, variants, by_task[task], comparison) for task in tasks[:TASKS]]
    return Findings(folder, document, comparison, found, len(tasks), variants)


def _entries(document: Mapping[str, Any]) -> dict[tuple[str, str], Entry]:
    entries: dict[tuple[str, str], Entry] = {}
    for cell in document["cells"]:
        task, variant = cell["task"], cell["variant"]
        entry = entries.setdefault((task, variant), Entry(variant, task))
        (entry.tuning if cell.get("phase") == "tune" else entry.cells).append(cell)
    for verdict in document["verdicts"]:
        place = verdict["task"], verdict["variant"]
        entries.setdefault(place, Entry(place[1], place[0])).verdict = verdict
    return entries


def _task(
    name: str, variants: Sequence[str], found: Mapping[str, Entry], comparison: Mapping[str, Any]
) -> TaskFindings:
    entries = {variant: found.get(variant) or Entry(variant, name) for variant in variants}
    verdicts = [entry.verdict for entry in entries.values() if entry.verdict]
    metric = next((verdict["metric"] for verdict in verdicts if verdict.get("metric")), None)
    if metric is None:
        measured = (name for entry in found.values() for cell in entry.cells for name in cell["metrics"])
        metric = next((name for name in measured if name.startswith(("test_", "val_"))), "")
    named = next((verdict["baseline"] for verdict in verdicts), comparison.get("baseline"))
    better = next((verdict.get("better") for verdict in verdicts), None)
    return TaskFindings(name, metric, better, named or next(iter(variants), ""), entries)


def _finite(values: Iterable[Any]) -> list[float]:
    return [value for value in values if isinstance(value, int | float) and math.isfinite(value)]


def _read_json(file: Path) -> dict[str, Any] | None:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
