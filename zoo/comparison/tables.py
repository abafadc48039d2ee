"""A comparison on a terminal of 80 columns: for each task a table, then what has no place in it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from zoo.comparison.cells import outcome

WIDEST_NAME = 24
"""Columns for the names of variants; a longer one is broken."""

NONE = "-"


def result_tables(result: Mapping[str, Any]) -> Iterator[Table | Text]:
    """Tables and lines of what ``compare_variants`` returned."""
    for task in dict.fromkeys(cell["task"] for cell in result["cells"]):
        yield _task_table(task, result)
        for verdict in result["verdicts"]:
            if verdict["task"] == task and verdict["note"]:
                yield Text(f"{verdict['variant']}: {verdict['note']}")
        yield Text("")
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
    yield from _not_completed(result)


def _task_table(task: str, result: Mapping[str, Any]) -> Table:
    verdicts = {verdict["variant"]: verdict for verdict in result["verdicts"] if verdict["task"] == task}
    metric, baseline = next((v["metric"], v["baseline"]) for v in verdicts.values())
    cells = [cell for cell in result["cells"] if cell["task"] == task]
    table = _table(
        "variant", metric or "metric", "difference", "95 % interval", "p", "verdict", title=Text(f"task {task}")
    )
    for variant in dict.fromkeys(cell["variant"] for cell in cells):
        mean = _mean([cell for cell in cells if cell["variant"] == variant], metric)
        said = _verdict_cells(verdicts[variant]) if variant != baseline else ["baseline", "", "", ""]
        table.add_row(*map(Text, [variant, mean, *said]))
    return table


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
    low, high, p = verdict["low"], verdict["high"], verdict["p"]
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
