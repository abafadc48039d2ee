"""How much a report draws and lists, so that a comparison of any size gives one that can be opened."""

from __future__ import annotations

TASKS = 30
"""Tasks that are reported on."""
VARIANTS = 48
"""Variants in the figures of a task."""
ROWS = 500
"""Rows of a table."""
STEPS = 200
"""Steps of a learning curve."""
LISTED_STEPS = 40
"""Of those, how many its table has."""


def left_out(shown: int, total: int, what: str, where: str = "results.json has all") -> str:
    """What a reader must know where not everything is shown; nothing where it is."""
    return "" if shown >= total else f"Shown are {shown:,} of {total:,} {what}; {where}."


def spaced(count: int, most: int) -> list[int]:
    """At most so many places of ``count``, evenly spaced, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})
