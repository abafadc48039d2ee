"""Learning curves: a metric at each step, as mean and spread over the seeds of a variant."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.report.caps import LISTED_STEPS, STEPS, left_out, spaced
from zoo.report.findings import Entry, Findings, TaskFindings
from zoo.report.plain import number, some
from zoo.report.section import Plot, Section, Table, Value
from zoo.report.series import line_figure
from zoo.training.metrics import read_metrics


@dataclasses.dataclass(frozen=True)
class Curve:
    """Of one variant; a value for each step that any of its seeds has.

    Attributes:
        steps: in order.
        means: over the seeds that have the step.
        spreads: standard deviations; 0 where one seed has the step.
        seeds: how many have it.
    """

    steps: Sequence[int]
    means: Sequence[float]
    spreads: Sequence[float]
    seeds: Sequence[int]


def curve_section(findings: Findings) -> Section | None:
    """A figure for each task whose runs have measured something."""
    plots = [(task, plot) for task in findings.tasks if (plot := _plot(task, findings))]
    if not plots:
        return None
    note = (
        "Lines are means over seeds, bands one standard deviation to each side. A run that diverged or was "
        "stopped adds to the mean up to its last row only; how many seeds a point has is in the table."
    )
    return Section("Learning curves", [note, *(Section(f"Task {task.name}", [plot]) for task, plot in plots)])


def read_curve(entry: Entry, findings: Findings, metric: str) -> Curve | None:
    """What the runs of a variant have written, at no more than ``STEPS`` steps; ``None`` where that is nothing."""
    values: dict[int, list[float]] = {}
    for cell in entry.cells:
        run = findings.run(cell)
        file = run / "metrics.csv" if run else None
        for row in read_metrics(file) if file and file.is_file() else ():
            if math.isfinite(value := row.get(metric, math.nan)):
                values.setdefault(int(row["step"]), []).append(value)
    every = sorted(values)
    steps = [every[place] for place in spaced(len(every), STEPS)]
    at = [values[step] for step in steps]
    spreads = [statistics.stdev(found) if len(found) > 1 else 0.0 for found in at]
    return Curve(steps, [*map(statistics.fmean, at)], spreads, [*map(len, at)]) if steps else None


def _plot(task: TaskFindings, findings: Findings) -> Plot | None:
    metric = task.validated
    drawn = task.drawn()
    read = {entry.variant: read_curve(entry, findings, metric) for entry in drawn} if metric else {}
    curves = {variant: curve for variant, curve in read.items() if curve}
    if not curves:
        return None
    last = some(f"{variant} {number(curve.means[-1])} at step {curve.steps[-1]:,}" for variant, curve in curves.items())
    title = f"Learning curves: {metric} by step"
    return Plot(_figure(task, curves, metric), title, f"At the end: {last}.", _table(task, curves, metric))


def _table(task: TaskFindings, curves: Mapping[str, Curve], metric: str) -> Table:
    rows: list[list[Value]] = [
        [variant, curve.steps[place], curve.means[place], curve.spreads[place], curve.seeds[place]]
        for variant, curve in curves.items()
        for place in spaced(len(curve.steps), max(2, min(LISTED_STEPS, 500 // len(curves))))
    ]
    total = sum(len(curve.steps) for curve in curves.values())
    notes = [
        left_out(len(rows), total, "points", "metrics.csv of each run has all"),
        left_out(len(task.drawn()), len(task.entries), "variants"),
    ]
    return Table(["variant", "step", metric, "spread", "seeds"], rows, note=" ".join(filter(None, notes)))


def _figure(task: TaskFindings, curves: Mapping[str, Curve], metric: str) -> Any:
    def draw(axes: Any, variant: str, look: dict[str, Any]) -> None:
        curve = curves[variant]
        low = [mean - spread for mean, spread in zip(curve.means, curve.spreads, strict=True)]
        high = [mean + spread for mean, spread in zip(curve.means, curve.spreads, strict=True)]
        axes.fill_between(curve.steps, low, high, color=look["color"], alpha=0.15, linewidth=0)
        axes.plot(curve.steps, curve.means, markevery=max(1, len(curve.steps) // 8), **look)

    return line_figure(task, curves, draw, x="step", y=metric, height=3.3)
