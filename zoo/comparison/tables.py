"""A comparison on a terminal of 80 columns: for each task a table, then what has no place in it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from zoo.comparison.cells import outcome
from zoo.comparison.power import POWER
from zoo.comparison.statistics import ALPHA

WIDEST_NAME = 24
"""Columns for the names of variants; a longer one is broken."""

NONE = "-"


def result_tables(result: Mapping[str, Any]) -> Iterator[Table | Text]:
    """Tables and lines of what ``compare_variants`` returned."""
    for task in dict.fromkeys(cell["task"] for cell in result["cells"]):
        yield _task_table(task, result)
        verdicts = [verdict for verdict in result["verdicts"] if verdict["task"] == task]
        yield from _scales(verdicts)
        yield from (Text(f"{verdict['variant']}: {verdict['note']}") for verdict in verdicts if verdict["note"])
        yield Text("")
    yield from _legend(result["verdicts"])
    yield from _not_completed(result)


def plan_table(result: Mapping[str, Any]) -> Iterator[Table | Text]:
    """The grid with the number of cells in each status, and why some are invalid."""
    table = _table("variant", "task", "cells")
    rows: dict[tuple[str, str], list[str]] = {}
    for cell in result["cells"]:
        rows.setdefault((cell["variant"], cell["task"]), []).append(cell["status"])
    for (variant, task), statuses in rows.items():
        table.add_row(Text(variant), Text(task), Text(_counted(statuses)))
    yield table
    yield Text(f"{len(result['cells'])} cells: {_counted([cell['status'] for cell in result['cells']])}")
    yield from map(Text, result["remarks"])
    yield from _not_completed(result)


def _task_table(task: str, result: Mapping[str, Any]) -> Table:
    verdicts = {verdict["variant"]: verdict for verdict in result["verdicts"] if verdict["task"] == task}
    metric, baseline = next((v["metric"], v["baseline"]) for v in verdicts.values())
    cells = [cell for cell in result["cells"] if cell["task"] == task and cell.get("phase", "report") == "report"]
    better = next(iter(verdicts.values())).get("better")
    what = f": {metric}, {better} is better" if metric and better else ""
    table = _table("variant", "mean", "difference", "interval", "p", "verdict", title=Text(f"task {task}{what}"))
    for variant in dict.fromkeys(cell["variant"] for cell in cells):
        mean = _mean([cell for cell in cells if cell["variant"] == variant], metric)
        said = _verdict_cells(verdicts[variant]) if variant != baseline else ["baseline", "", "", ""]
        table.add_row(*map(Text, [variant, mean, *said]))
    return table


def _scales(verdicts: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """What differences of a task are to be held against, the same for all of its verdicts."""
    margin = next((verdict["margin"] for verdict in verdicts if verdict["margin"] is not None), None)
    noise = next((verdict["noise"] for verdict in verdicts if verdict.get("noise") is not None), None)
    if margin is not None:
        yield Text(f"differences within ±{margin:g} are equivalent")
    if noise is not None:
        baseline = verdicts[0]["baseline"]
        yield Text(f"noise floor: with other seeds {baseline} differs from itself by up to {_number(noise)}")


def _legend(verdicts: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """What the columns mean, where there is something in them; two lines at most."""
    levels = [100 * verdict["confidence"] for verdict in verdicts if verdict["p_adjusted"] is not None]
    if levels:
        least, most = f"{min(levels):.4g}", f"{max(levels):.4g}"
        level = least if least == most else f"{least} to {most}"
        yield Text(f"p: Holm over {len(verdicts)} verdicts; intervals of {level} %, which leave out 0 if p <= {ALPHA}")
    if any(verdict["seeds_needed"] is not None for verdict in verdicts):
        yield Text(f"more seeds: so many that such a difference is found with probability {POWER}")


def _table(*columns: str, title: Text | None = None) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), title=title, title_justify="left", title_style="bold")
    for name in columns:
        is_text = name in ("variant", "task", "cells", "verdict")
        table.add_column(
            Text(name),
            justify="left" if is_text else "right",
            overflow="fold",
            max_width=WIDEST_NAME if is_text else None,
            no_wrap=not is_text,
        )
    return table


def _mean(cells: list[Mapping[str, Any]], metric: str | None) -> str:
    values = [cell["metrics"].get(metric) for cell in cells if cell["status"] == "completed"]
    found = [value for value in values if value is not None]
    return _number(statistics.fmean(found) if found else None)


def _verdict_cells(verdict: Mapping[str, Any]) -> list[str]:
    low, high, p = verdict["low"], verdict["high"], verdict["p_adjusted"]
    interval = NONE if low is None else f"{_number(low, '+')} {_number(high, '+')}"
    return [_number(verdict["difference"], "+"), interval, NONE if p is None else f"{p:.2g}", verdict["verdict"]]


def _number(value: float | None, sign: str = "") -> str:
    """Four significant digits: ``1.234``, ``+0.001234``, ``-12.34``."""
    return NONE if value is None else f"{value:{sign}#.4g}"


def _counted(statuses: list[str]) -> str:
    return ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))


def _not_completed(result: Mapping[str, Any]) -> Iterator[Text]:
    """Each reason once, behind the cells that it belongs to."""
    reasons: dict[str, list[str]] = {}
    for cell in result["cells"]:
        if cell["status"] not in ("completed", "planned"):
            what = outcome(cell["status"], cell["reason"])
            reasons.setdefault(what, []).append(f"{cell['variant']} on {cell['task']}")
    for what, places in reasons.items():
        counted = [f"{place} ({places.count(place)})" for place in dict.fromkeys(places)]
        yield Text("\n".join([", ".join(counted), *(f"  {line}" for line in what.splitlines())]))
