"""What tells variants apart in a figure: a colour, a marker and a line, any of which is enough within a panel."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.report.figure import legend_below, new_figure
from zoo.report.findings import Entry, TaskFindings
from zoo.report.plain import short, short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette without its black, which is the baseline's, and its yellow, which paper swallows."""
MARKERS = ("s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "d", "*")
LINES: tuple[Any, ...] = ((0, (5, 2)), (0, (5, 1, 1, 1)), (0, (1, 1)), (0, (8, 3)), (0, (3, 1, 1, 1, 1, 1)), "-")
BASELINE = "#000000"


class Style(NamedTuple):
    """How a variant is drawn; 72 variants have each a colour and marker of their own."""

    colour: str
    marker: str
    line: Any


def styles(task: TaskFindings, drawn: Sequence[Entry]) -> dict[str, Style]:
    """A style for each variant of a figure."""
    others = [entry.variant for entry in drawn if entry.variant != task.baseline]
    found = {name: _style(place) for place, name in enumerate(others)}
    return {task.baseline: Style(BASELINE, "o", "-"), **found}


def _style(place: int) -> Style:
    colours, markers = len(COLOURS), len(MARKERS)
    return Style(COLOURS[place % colours], MARKERS[(place + place // colours) % markers], LINES[place % len(LINES)])


def panels(task: TaskFindings, drawn: Sequence[Entry], shown: Collection[str]) -> list[list[Entry]]:
    """Groups of those variants that are shown; they differ in colour, marker and line, the baseline first in each."""
    baseline = [entry for entry in drawn if entry.variant == task.baseline and entry.variant in shown]
    others = [entry for entry in drawn if entry.variant != task.baseline]
    groups = [others[start : start + len(COLOURS)] for start in range(0, len(others), len(COLOURS))]
    kept = [[entry for entry in group if entry.variant in shown] for group in groups]
    return [[*baseline, *group] for group in kept if group] or [baseline]


def line_figure(
    task: TaskFindings,
    shown: Collection[str],
    draw: Callable[[Axes, str, dict[str, Any]], None],
    *,
    x: str,
    y: str,
    height: float = 3.0,
) -> Figure:
    """A figure with a line for each variant: one panel, or several on the same scales with the baseline in each.

    Args:
        task: whose variants they are.
        shown: those that have a line.
        draw: draws that of a variant into axes, with the keywords ``color``, ``marker``, ``linestyle`` and ``label``.
        x, y: what the scales mean.
        height: inches of a panel.
    """
    drawn = task.drawn()
    groups = panels(task, drawn, shown)
    columns = min(len(groups), 2)
    legend = 0.16 * max(map(len, groups)) if columns > 1 else 0.0  # below each panel
    figure, axes = new_figure(math.ceil(len(groups) / columns), columns, height + legend, share_x=True, share_y=True)
    looks, labels = styles(task, drawn), short_names(shown)
    for here, group in zip(axes, groups, strict=False):
        for entry in group:
            colour, marker, line = looks[entry.variant]
            look = {"color": colour, "marker": marker, "linestyle": line, "label": labels[entry.variant]}
            draw(here, entry.variant, look)
        if columns > 1:
            here.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.1), borderaxespad=0)
    for spare in axes[len(groups) :]:
        spare.set_visible(False)
    figure.supxlabel(short(x), fontsize=9)
    figure.supylabel(short(y), fontsize=9)
    if columns == 1:
        legend_below(figure, axes)
    return figure
