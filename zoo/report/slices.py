"""Slices: a metric by length, by number of pairs or whatever else the names of metrics end in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.report.caps import ROWS, left_out
from zoo.report.findings import Entry, Findings, TaskFindings
from zoo.report.plain import number, some
from zoo.report.section import Plot, Section, Table
from zoo.report.series import line_figure

_SLICE = re.compile(r"((?:val|test)_.+)_(\d{1,9})")


def slice_section(findings: Findings) -> Section | None:
    """A figure for each task and metric that was measured at several numbers."""
    sections = [
        Section(f"Task {task.name}", [_plot(task, stem, numbers) for stem, numbers in found.items()])
        for task in findings.tasks
        if (found := slices(task))
    ]
    note = "Means over seeds; bars are one standard deviation to each side."
    return Section("Slices", [note, *sections]) if sections else None


def slices(task: TaskFindings) -> Mapping[str, Sequence[int]]:
    """Numbers by metric: ``val_accuracy_pairs_8`` and ``..._16`` are 8 and 16 of ``val_accuracy_pairs``."""
    names = {name for entry in task.drawn() for cell in entry.cells for name in cell["metrics"]}
    found: dict[str, list[int]] = {}
    for name in sorted(names):
        if match := _SLICE.fullmatch(name):
            found.setdefault(match[1], []).append(int(match[2]))
    return {stem: sorted(numbers) for stem, numbers in found.items() if len(numbers) > 1}


def _plot(task: TaskFindings, stem: str, numbers: Sequence[int]) -> Plot:
    drawn = [entry for entry in task.drawn() if any(entry.values(f"{stem}_{at}") for at in numbers)]
    rows = [
        [entry.variant, at, entry.mean(f"{stem}_{at}"), entry.spread(f"{stem}_{at}"), len(entry.values(f"{stem}_{at}"))]
        for entry in drawn
        for at in numbers
    ]
    ends = (f"{entry.variant} {_said(entry, stem, numbers[0])} to {_said(entry, stem, numbers[-1])}" for entry in drawn)
    title = f"{stem} from {numbers[0]:,} to {numbers[-1]:,}"
    table = Table(
        ["variant", stem.rpartition("_")[2], stem, "spread", "seeds"],
        rows[:ROWS],
        note=left_out(ROWS, len(rows), "means"),
    )
    return Plot(_figure(task, drawn, stem, numbers), title, f"{some(ends)}.", table)


def _said(entry: Entry, stem: str, at: int) -> str:
    mean = entry.mean(f"{stem}_{at}")
    return "nothing" if mean is None else number(mean)


def _figure(task: TaskFindings, drawn: Sequence[Entry], stem: str, numbers: Sequence[int]) -> Any:
    entries = {entry.variant: entry for entry in drawn}

    def draw(axes: Any, variant: str, look: dict[str, Any]) -> None:
        entry = entries[variant]
        at = [one for one in numbers if entry.values(f"{stem}_{one}")]
        means = [entry.mean(f"{stem}_{one}") for one in at]
        spreads = [entry.spread(f"{stem}_{one}") or 0.0 for one in at]
        axes.errorbar(at, means, yerr=spreads, capsize=2, elinewidth=0.8, **look)
        if numbers[0] > 0 and numbers[-1] >= 8 * numbers[0]:
            axes.set_xscale("log", base=2)
        axes.set_xticks(numbers if len(numbers) < 9 else numbers[:: len(numbers) // 8])
        axes.xaxis.set_major_formatter("{x:g}")

    return line_figure(task, entries, draw, x=stem.rpartition("_")[2], y=stem)
