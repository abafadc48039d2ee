"""Forest plot: the difference of every variant from the baseline, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zoo.report.bars import interval_bars
from zoo.report.caps import left_out
from zoo.report.figure import legend_below, new_figure
from zoo.report.findings import Entry, TaskFindings
from zoo.report.plain import number, short, short_names, some
from zoo.report.section import Plot, Table

LOOKS = {
    "better": ("#0072B2", "o", "#0072B2"),
    "worse": ("#D55E00", "s", "#D55E00"),
    "equivalent": ("#009E73", "D", "#009E73"),
    "undecided": ("#666666", "o", "#ffffff"),
}
"""Colour, marker and filling for each verdict."""
COLUMNS = ("difference", "low", "high")


def forest(task: TaskFindings) -> Plot | None:
    """The plot of a task; ``None`` where no variant has a difference."""
    drawn = [entry for entry in task.drawn() if entry.verdict and entry.verdict.get("difference") is not None]
    if not drawn:
        return None
    margin, noise = task.of_verdicts("margin"), task.of_verdicts("noise")
    rows = [[entry.variant, *(_of(entry, name) for name in COLUMNS), _of(entry, "verdict")] for entry in drawn]
    note = left_out(len(task.drawn()), len(task.entries), "variants", "the table above has more")
    return Plot(
        _figure(task, drawn, margin, noise),
        f"Forest plot: differences in {task.metric} from {task.baseline}",
        _text(drawn, margin),
        Table(["variant", *COLUMNS, "verdict"], rows, signed=COLUMNS, note=note),
        interval_bars([(entry.variant, *_interval(entry)) for entry in drawn], margin),
    )


def _of(entry: Entry, name: str) -> Any:
    assert entry.verdict is not None
    return entry.verdict.get(name)


def _interval(entry: Entry) -> tuple[float, float, float]:
    """Difference, low and high; without an interval all three are the difference."""
    middle, low, high = (_of(entry, name) for name in COLUMNS)
    return (middle, middle, middle) if low is None or high is None else (middle, low, high)


def _figure(task: TaskFindings, drawn: Sequence[Entry], margin: float | None, noise: float | None) -> Any:
    figure, (axes,) = new_figure(1, 1, 1.1 + 0.24 * len(drawn))
    labels = short_names(entry.variant for entry in drawn)
    if margin is not None:
        axes.axvspan(-margin, margin, color="#009E73", alpha=0.15, linewidth=0, label="equivalence margin")
    axes.axvline(0, color="black", linewidth=1)
    if noise is not None:
        axes.axvline(-noise, color="#555555", linestyle=":", label="noise floor")
        axes.axvline(noise, color="#555555", linestyle=":")
    for verdict in dict.fromkeys(_of(entry, "verdict") for entry in drawn):
        colour, marker, filling = LOOKS.get(verdict, LOOKS["undecided"])
        places = [place for place, entry in enumerate(drawn) if _of(entry, "verdict") == verdict]
        spans = [_interval(drawn[place]) for place in places]
        reach = [[span[0] - span[1] for span in spans], [span[2] - span[0] for span in spans]]
        look = {"color": colour, "marker": marker, "mfc": filling, "linestyle": "none", "capsize": 3}
        axes.errorbar([span[0] for span in spans], places, xerr=reach, label=short(str(verdict)), **look)
    axes.set_yticks(range(len(drawn)), [*labels.values()])
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    side = {"lower": "  (left is better)", "higher": "  (right is better)"}.get(task.better or "", "")
    axes.set_xlabel(f"difference in {short(task.metric)} from {short(task.baseline)}{side}")
    legend_below(figure, [axes], columns=6)
    return figure


def _text(drawn: Sequence[Entry], margin: float | None) -> str:
    said = []
    for entry in drawn:
        middle, low, high = _interval(entry)
        bounds = f" ({number(low, signed=True)} to {number(high, signed=True)})" if low < high else ""
        said.append(f"{entry.variant} {number(middle, signed=True)}{bounds}, {_of(entry, 'verdict')}")
    band = f" The equivalence margin is ±{margin:g}." if margin is not None else ""
    return f"{some(said)}.{band}"
