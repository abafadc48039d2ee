"""What a report consists of, as plain values; how they look is the business of ``page`` and ``markdown``.

A plugin gives these too, through the hook ``zoo_report_sections``, so it writes no HTML and needs none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Value: TypeAlias = str | int | float | None
"""Of a table's cell; ``None`` is a dash."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows under column titles; the first column names the row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    """As many values in each as there are columns."""
    signed: Collection[str] = ()
    """Columns whose numbers always have a sign."""
    digits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Significant digits of numbers by column; 4 unless said."""
    note: str = ""
    """A sentence below it."""


@dataclasses.dataclass(frozen=True)
class Plot:
    """A figure, what it shows in words, and its numbers."""

    figure: Figure
    """Made with ``matplotlib.figure.Figure``, so that no window is opened and nothing is left behind."""
    title: str
    """What it is, in some words."""
    text: str
    """What it shows, for those who can't see it."""
    table: Table | None = None
    """The numbers that it shows."""
    bars: Sequence[str] = ()
    """The same drawn with characters, for report.md."""


@dataclasses.dataclass(frozen=True)
class Code:
    """Text to be copied, such as a command."""

    text: str


@dataclasses.dataclass(frozen=True)
class Section:
    """A title and what stands below it."""

    title: str
    parts: Sequence[str | Table | Plot | Code | Section]
    """A text is a paragraph."""
