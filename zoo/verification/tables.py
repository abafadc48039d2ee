"""Differences, replays and published results on a terminal of 80 columns."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from zoo.verification.entries import Entry

PIPE = 80
"""Columns of what goes into a file or pipe."""

NONE = "-"
DIGEST = 64
"""Letters of a hash, of which a table shows the first twelve."""

Part = Table | Text


def show(parts: Iterable[Part]) -> None:
    """Print to stdout, as wide as the terminal."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE)
    for part in parts:
        console.print(part)


def difference_tables(found: Mapping[str, Any]) -> Iterator[Part]:
    """What ``diff`` returned, the sentence last."""
    yield from _named("recipe", [(each["path"], *_with_origins(each)) for each in found["recipe"]])
    yield from _named("lock", _pairs(found["lock"], "path"))
    yield from _named("run", _pairs(found["result"], "name"))
    yield from _named("metrics of the last step", _pairs(found["metrics"], "name"))
    yield from _named("best validation", _pairs(found["best"], "name"))
    yield from _first_difference(found["rows"])
    yield from _alone(found["rows"])
    yield Text(found["sentence"])


def replay_tables(found: Mapping[str, Any]) -> Iterator[Part]:
    """What ``replay`` returned, the sentence last."""
    drift = [(each["what"], each["then"], each["now"]) for each in found["drift"]]
    yield from _named("changed since the run", drift, "then", "now")
    yield from _named("lock", _pairs(found["lock"], "path"), "run", "replay")
    if found["status"] != "bit-equal":
        yield from _first_difference(found["rows"], "run", "replay")
    for note in found["notes"]:
        yield Text(f"note: {note}")
    yield Text(found["sentence"])


def entry_tables(entries: Sequence[Entry]) -> Iterator[Part]:
    """Published results as they are listed: claims, sources, and what each check asks for."""
    for entry in entries:
        yield Text(f"{entry.name}, about {minutes(entry.seconds)}", style="bold")
        yield Text(entry.claim)
        yield Text(entry.source)
        table = _table("check", "metric", "published", "passes", "time")
        for name, check in entry.checks.items():
            values = (check.metric, _shown(check.published), check.bounds, minutes(check.seconds))
            table.add_row(*map(Text, (name, *values)))
        yield table
        yield Text("")
    yield Text(f"about {minutes(sum(entry.seconds for entry in entries))} on two cores")


def verify_tables(found: Mapping[str, Any]) -> Iterator[Part]:
    """What ``verify`` returned."""
    for entry in found["entries"]:
        yield Text(f"{entry['status'].upper()} {entry['name']}: {entry['claim']}", style="bold")
        yield Text(entry["source"])
        table = _table("check", "published", "passes", "measured", "time", "")
        for check in entry["checks"]:
            measured = _shown(check["value"])
            values = (_shown(check["published"]), check["bounds"], measured, minutes(check["seconds"]))
            table.add_row(*map(Text, (check["name"], *values, check["status"].upper())))
        yield table
        for check in entry["checks"]:
            if check["reason"]:
                yield Text(f"{check['name']}: {check['reason']}")
        yield Text("")
    yield Text(f"{found['passed']} passed, {found['failed']} failed, in {minutes(found['seconds'])}")


def minutes(seconds: float) -> str:
    """``45 s``, ``3 min 20 s``, ``1 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _named(title: str, rows: Iterable[Sequence[str | Text]], first: str = "A", second: str = "B") -> Iterator[Part]:
    """A table with a title, or nothing where it has no row."""
    table = _table(title, first, second)
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    if table.row_count:
        yield table
        yield Text("")


def _table(*columns: str) -> Table:
    """The first column takes what it needs, up to half of the width; the others break."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for place, name in enumerate(columns):
        table.add_column(Text(name), overflow="fold", max_width=None if place else 40)
    return table


def _pairs(changes: Sequence[Mapping[str, Any]], name: str) -> list[tuple[str, str, str]]:
    return [(each[name], *_told_apart(each["a"], each["b"])) for each in changes]


def _told_apart(first: Any, second: Any) -> tuple[str, str]:
    """Two values for eyes, with all digits where fewer look the same."""
    shown = _shown(first), _shown(second)
    return (repr(first), repr(second)) if shown[0] == shown[1] and first != second else shown


def _with_origins(change: Mapping[str, Any]) -> tuple[Text, Text]:
    sides = [(_shown(change[side]), change[f"{side}_origin"]) for side in ("a", "b")]
    first, second = (Text(value) if origin is None else Text(f"{value}\n({origin})") for value, origin in sides)
    return first, second


def _first_difference(rows: Mapping[str, Any] | None, first: str = "A", second: str = "B") -> Iterator[Part]:
    found = rows and rows["first_difference"]
    if not found:
        return
    table = _table(f"first step that differs: {found['step']:,}", first, second, "relative")
    for column in found["columns"]:
        share = NONE if column["relative"] is None else f"{column['relative']:.1e}"
        table.add_row(*map(Text, (column["column"], repr(column["first"]), repr(column["second"]), share)))
    yield table
    yield Text("")


def _alone(rows: Mapping[str, Any] | None) -> Iterator[Part]:
    if rows:
        for side, count in zip("AB", rows["alone"], strict=True):
            if count:
                yield Text(f"{side} has {count:,} {'row' if count == 1 else 'rows'} of steps that the other didn't log")


def _shown(value: Any) -> str:
    """A value for eyes: hashes cut short, numbers with six digits."""
    if value is None:
        return NONE
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int):
        return f"{value:,}"
    is_hash = len(value) == DIGEST and set(value) <= set("0123456789abcdef")
    return value[:12] if is_hash else value
