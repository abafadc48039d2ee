"""What commands print: one JSON document, or tables that fit a terminal and stay whole in a pipe."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

GAP = 2
NARROWEST = 24
"""A last column that would be narrower than this goes below the others."""


def print_json(document: Any) -> None:
    """One JSON document to stdout; numbers that aren't finite become null, as JSON has none."""
    escaped = "utf" not in sys.stdout.encoding.lower()
    click.echo(json.dumps(_plain(document), indent=2, ensure_ascii=escaped, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def print_result(result: Mapping[str, Any], as_json: bool) -> None:
    """The outcome of a training or evaluation: its metrics and where the run is, or all of it as JSON."""
    if as_json:
        print_json(result)
        return
    rows = [
        (name, f"{value:,.4f}" if isinstance(value, float) else f"{value:,}")
        for name, value in result["metrics"].items()
    ]
    click.echo(f"{result['status']} after {result['steps']:,} steps:")
    click.echo(table(rows, right=True))
    click.echo(f"run: {near(result['run'])}")


def near(path: str | Path) -> str:
    """A path as it is typed in the working directory."""
    path = Path(path)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


@contextlib.contextmanager
def stdout_kept_for_json(wanted: bool) -> Iterator[None]:
    """Send everything to stderr that is printed meanwhile, by other processes too; does nothing if not wanted."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def terminal_width() -> int | None:
    """Columns of the terminal, or ``None`` where stdout is none: what goes into a pipe isn't wrapped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(rows: Sequence[Sequence[str]], *, width: int | None = None, right: bool = False) -> str:
    """Rows with aligned columns.

    Args:
        rows: as many texts in each.
        width: columns of the terminal; the last column is wrapped to it, or put below the others where it would
            be too narrow. ``None`` leaves it whole.
        right: whether the last column holds numbers, aligned to the right and never wrapped.
    """
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    if right:
        return "\n".join(_padded(row[:-1], widths) + row[-1].rjust(widths[-1]) for row in rows)
    lead = sum(widths[:-1]) + GAP * (len(widths) - 1)
    if width is None:
        return "\n".join((_padded(row[:-1], widths) + row[-1]).rstrip() for row in rows)
    if width - lead < min(NARROWEST, widths[-1]):
        return "\n".join(_stacked(row, width) for row in rows)
    return "\n".join(_wrapped(_padded(row[:-1], widths), row[-1], lead, width) for row in rows)


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(cell.ljust(size + GAP) for cell, size in zip(cells, widths, strict=False))


def _wrapped(lead: str, text: str, indent: int, width: int) -> str:
    lines = _lines(text, width - indent)
    return "\n".join(
        (start + line).rstrip() for start, line in zip([lead] + [" " * indent] * len(lines), lines, strict=False)
    )


def _stacked(row: Sequence[str], width: int) -> str:
    head = " ".join(filter(None, row[:-1]))
    return "\n".join([*_lines(head, width), *(f"    {line}" for line in _lines(row[-1], width - 4))]).rstrip()


def _lines(text: str, width: int) -> list[str]:
    return [line for part in text.splitlines() for line in textwrap.wrap(part, max(width, 8))] or [""]
