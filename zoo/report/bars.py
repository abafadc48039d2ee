"""Intervals drawn with characters, on one scale that has 0 on it."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.report.plain import number, short_names

COLUMNS = 49


def interval_bars(rows: Sequence[tuple[str, float, float, float]], margin: float | None = None) -> list[str]:
    """A line for each name, middle, low and high, and one for the scale below them.

    ``|`` is 0, ``-`` the interval, ``o`` its middle, ``.`` the margin's ends.
    """
    ends = [0.0, *(end for row in rows for end in row[1:]), *([-margin, margin] if margin else [])]
    low, high = min(ends), max(ends)
    scale = (COLUMNS - 1) / ((high - low) or 1.0)

    def column(value: float) -> int:
        return round((value - low) * scale)

    labels = short_names(row[0] for row in rows)
    widest = max(map(len, labels.values()), default=0)
    lines = []
    for name, middle, start, end in rows:
        line = [" "] * COLUMNS
        for edge in (-margin, margin) if margin else ():
            line[column(edge)] = "."
        line[column(start) : column(end) + 1] = "-" * (column(end) + 1 - column(start))
        line[column(0.0)] = "|"
        line[column(middle)] = "o"
        lines.append(f"{labels[name].ljust(widest)}  {''.join(line)}".rstrip())
    left, right = number(low, signed=True), number(high, signed=True)
    lines.append(" " * (widest + 2) + left + right.rjust(COLUMNS - len(left)))
    return lines
