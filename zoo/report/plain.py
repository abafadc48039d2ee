"""Texts and numbers as a report shows them, whatever they hold."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

LONGEST_NAME = 36
"""Characters of a name in a figure; a longer one loses its middle there."""
NONE = "-"

_COLOUR_CODES = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""Control characters, halves of characters, and those that make the text around them run the other way."""


def clean(text: str) -> str:
    """A text without what could break a file, or reorder its neighbours; what was taken out leaves a mark."""
    return _UNPRINTABLE.sub("\ufffd", _COLOUR_CODES.sub("", text.replace("\r\n", "\n")))


def number(value: int | float, digits: int = 4, *, signed: bool = False) -> str:
    """``1,234``, ``1.234``, ``+0.001234``, ``12,345``, ``1.2e-12``."""
    sign = "+" if signed else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:{sign},}"
    if not math.isfinite(value):
        return str(value)
    if 10**digits <= abs(value) < 1e15:
        return f"{value:{sign},.0f}"
    return f"{value:{sign}#.{digits}g}".removesuffix(".")


def shown(value: object, digits: int = 4, *, signed: bool = False) -> str:
    """A value of a table's cell."""
    if value is None:
        return NONE
    return number(value, digits, signed=signed) if isinstance(value, int | float) else clean(str(value))


def short(name: str) -> str:
    """A name in one line that fits into a figure."""
    line = " ".join(clean(name).split()) or "(no name)"
    if len(line) <= LONGEST_NAME:
        return line
    half = (LONGEST_NAME - 1) // 2
    return f"{line[:half]}…{line[-half:]}"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Names for a figure, no two the same; matplotlib's legends would leave out one that begins with ``_``."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        label = short(name)
        label = f" {label}" if label.startswith("_") else label
        found[name] = label if label not in taken else f"{label} ({len(found) + 1})"
        taken.add(found[name])
    return found


def some(names: Iterable[str], most: int = 8) -> str:
    """``a, b, c and 5 more``."""
    listed = list(names)
    rest = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {rest} more" if rest > 0 else "")
