"""What a smaller tuning budget would have found: the expected best score by the number of points tried.

    E[best of n] = Σ_i v_(i) · ((i / B)ⁿ - ((i - 1) / B)ⁿ)      v_(1) … v_(B): the B scores, the best one last

Dodge et al. 2019, arXiv:1909.03004, section 3, as ``zoo.comparison.best`` has it, whose intervals need more points than
a grid has.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from zoo.report.caps import ROWS, left_out
from zoo.report.findings import Entry, Findings, TaskFindings
from zoo.report.plain import number, some
from zoo.report.section import Plot, Section, Table, Value
from zoo.report.series import line_figure


def tuning_section(findings: Findings) -> Section | None:
    """A figure for each task that was tuned over at least two points."""
    sections = [Section(f"Task {task.name}", [plot]) for task in findings.tasks if (plot := _plot(task))]
    if not sections:
        return None
    note = (
        "The best score to be expected, on the validation part, had only so many points of the grid been tried. "
        "Where lines cross, which variant is better depends on what is spent on tuning."
    )
    return Section("Tuning", [note, *sections])


def scores(entry: Entry, metric: str) -> list[float | None]:
    """The metric at each point of the grid, a mean over seeds; ``None`` where a seed has no finite one."""
    points: dict[str, list[float]] = {}
    for cell in entry.tuning:
        value = cell["metrics"].get(metric) if cell["status"] == "completed" else None
        points.setdefault(repr(cell.get("point")), []).append(math.nan if value is None else value)
    means = [statistics.fmean(values) for values in points.values()]
    return [mean if math.isfinite(mean) else None for mean in means]


def expected_best(scores: Sequence[float | None], better: Literal["lower", "higher"]) -> list[float]:
    """For 1 to B points; one without a score counts as the worst of the others. Empty where none has a score."""
    known = [score for score in scores if score is not None]
    if not known:
        return []
    worst = (max if better == "lower" else min)(known)
    values = sorted((worst if score is None else score for score in scores), reverse=better == "lower")
    count = len(values)
    return [
        math.fsum(
            value * ((i / count) ** tries - ((i - 1) / count) ** tries) for i, value in enumerate(values, start=1)
        )
        for tries in range(1, count + 1)
    ]


def _plot(task: TaskFindings) -> Plot | None:
    if task.better is None or not any(entry.tuning for entry in task.entries.values()):
        return None
    metric = task.validated
    found = {entry.variant: expected_best(scores(entry, metric), task.better) for entry in task.drawn()}
    budgets = {variant: budget for variant, budget in found.items() if len(budget) > 1}
    if not budgets:
        return None
    rows: list[list[Value]] = [
        [variant, tries, best] for variant, budget in budgets.items() for tries, best in enumerate(budget, start=1)
    ]
    ends = (
        f"{name} {number(budget[0])} with 1 point, {number(budget[-1])} with all" for name, budget in budgets.items()
    )
    columns = ["variant", "points tried", f"expected best {metric}"]
    table = Table(columns, rows[:ROWS], note=left_out(ROWS, len(rows), "rows"))
    return Plot(_figure(task, budgets, metric), f"Expected best {metric}", f"{some(ends)}.", table)


def _figure(task: TaskFindings, budgets: Mapping[str, Sequence[float]], metric: str) -> Any:
    def draw(axes: Any, variant: str, look: dict[str, Any]) -> None:
        axes.plot(range(1, len(budgets[variant]) + 1), budgets[variant], **look)
        axes.xaxis.get_major_locator().set_params(integer=True)

    return line_figure(task, budgets, draw, x="points of the grid tried", y=f"expected best {metric}")
