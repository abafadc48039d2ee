"""Quality against what it costs: a point for each variant, and the front of those that no other beats in both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from zoo.report.caps import left_out
from zoo.report.figure import legend_below, new_figure
from zoo.report.findings import Entry, Findings, TaskFindings
from zoo.report.plain import short, short_names, some
from zoo.report.section import Plot, Section, Table, Value
from zoo.report.series import styles


class Axis(NamedTuple):
    """A cost that quality is held against."""

    name: str
    """As results.json calls it."""
    title: str
    better: Literal["lower", "higher"]


AXES = (
    Axis("parameters", "parameters", "lower"),
    Axis("macs", "multiply-adds per token or image", "lower"),
    Axis("train_tokens_per_s", "training tokens per second", "higher"),
    Axis("peak_bytes", "peak memory in bytes", "lower"),
)


def pareto_section(findings: Findings) -> Section | None:
    """A figure for each task, with a panel for each cost that was measured, and all costs in its table."""
    sections = [Section(f"Task {task.name}", [plot]) for task in findings.tasks if (plot := _plot(task))]
    if not sections:
        return None
    note = (
        "Each point is a variant: the mean of its metric over seeds, with one standard deviation to each side, against "
        "the mean of a cost. The grey line joins the front: variants that no other one beats in both."
    )
    return Section("Quality and cost", [note, *sections])


def front(points: Sequence[tuple[float, float]], x_sign: int, y_sign: int) -> list[int]:
    """Places of the points that no other is at least as good as in both and better in one, along x.

    Args:
        points: pairs x, y.
        x_sign, y_sign: 1 where lower is better, -1 where higher is.
    """
    signed = [(x_sign * x, y_sign * y) for x, y in points]
    found: list[int] = []
    best = math.inf
    for place in sorted(range(len(signed)), key=signed.__getitem__):
        x, y = signed[place]
        if y < best:
            found.append(place)
            best = y
        elif found and (x, y) == signed[found[-1]]:
            found.append(place)
    return found


class _Panel(NamedTuple):
    axis: Axis
    entries: list[Entry]
    points: list[tuple[float, float]]
    front: list[int]


def _plot(task: TaskFindings) -> Plot | None:
    drawn = [entry for entry in task.drawn() if entry.values(task.metric)]
    panels = [panel for axis in AXES if (panel := _panel(task, drawn, axis))]
    if not panels:
        return None
    best = [
        f"{panel.axis.title}: {some(panel.entries[place].variant for place in panel.front)}"
        for panel in panels
        if panel.front
    ]
    text = f"On the front by {'; by '.join(best)}." if best else "No front: which way the metric is better isn't said."
    return Plot(_figure(task, drawn, panels), f"{task.metric} against cost", text, _table(task, drawn, panels))


def _panel(task: TaskFindings, drawn: Sequence[Entry], axis: Axis) -> _Panel | None:
    costs = [(entry, cost) for entry in drawn if (cost := entry.cost(axis.name)) is not None]
    if not costs:
        return None
    entries = [entry for entry, _ in costs]
    points = [(cost, entry.mean(task.metric) or 0.0) for entry, cost in costs]
    signs = {"lower": 1, "higher": -1}
    best = front(points, signs[axis.better], signs[task.better]) if task.better else []
    return _Panel(axis, entries, points, best)


def _table(task: TaskFindings, drawn: Sequence[Entry], panels: Sequence[_Panel]) -> Table:
    names = [*dict.fromkeys(name for entry in drawn for cell in entry.cells for name in cell["costs"])]
    fronts: dict[str, list[str]] = {}
    for panel in panels:
        for place in panel.front:
            fronts.setdefault(panel.entries[place].variant, []).append(panel.axis.title)
    rows: list[list[Value]] = [
        [
            entry.variant,
            entry.mean(task.metric),
            *(entry.cost(name) for name in names),
            ", ".join(fronts.get(entry.variant, [])),
        ]
        for entry in drawn
    ]
    note = left_out(len(task.drawn()), len(task.entries), "variants")
    return Table(["variant", task.metric, *names, "on the front by"], rows, note=note)


def _figure(task: TaskFindings, drawn: Sequence[Entry], panels: Sequence[_Panel]) -> Any:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    columns = min(len(panels), 2)
    figure, axes = new_figure(math.ceil(len(panels) / columns), columns, 2.7, share_y=True)
    looks, labels = styles(task, drawn), short_names(entry.variant for entry in drawn)
    for here, panel in zip(axes, panels, strict=False):
        line = [panel.points[place] for place in panel.front]
        here.plot([x for x, _ in line], [y for _, y in line], color="#999999", linewidth=1)
        spreads = [entry.spread(task.metric) or 0.0 for entry in panel.entries]
        colours = [looks[entry.variant].colour for entry in panel.entries]
        low = [y - spread for (_, y), spread in zip(panel.points, spreads, strict=True)]
        high = [y + spread for (_, y), spread in zip(panel.points, spreads, strict=True)]
        here.vlines([x for x, _ in panel.points], low, high, colors=colours, linewidth=0.9)
        for entry, (x, y) in zip(panel.entries, panel.points, strict=True):
            colour, marker, _ = looks[entry.variant]
            here.plot([x], [y], color=colour, marker=marker, linestyle="none", label=labels[entry.variant])
        here.xaxis.set_major_formatter(EngFormatter())
        here.xaxis.set_major_locator(MaxNLocator(4))
        here.set_xlabel(f"{panel.axis.title} ({panel.axis.better} is better)")
        here.margins(x=0.1)
    for spare in axes[len(panels) :]:
        spare.set_visible(False)
    way = f" ({task.better} is better)" if task.better else ""
    figure.supylabel(f"{short(task.metric)}{way}", fontsize=9)
    legend_below(figure, axes)
    return figure
