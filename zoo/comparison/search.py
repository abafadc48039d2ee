"""Whole numbers that bring a quantity to a value: feed-forward size first, then the width, then the number of heads.

The quantity must not fall when the feed-forward size or the width rises. It is measured by building a model, so the
search interpolates, remembers what it has measured, and stops at the first sizes that are good enough.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

SHRINK = GROW = 2
"""How far the feed-forward size may leave its proportion to the width: by half, or twice."""
WIDEST = 64
"""Most widths that a model may grow to, as a multiple of its own."""
QUANTA = (1, 2, 4, 8, 16, 32)
"""Sizes that a head may have to be a multiple of: rotary positions want 2, those of a grid 4 or 8."""
MOST = 600
"""Models that are tried at most."""


class Sizes(NamedTuple):
    """What the search changes."""

    hidden: int
    """Feed-forward size; 0 where the recipe has none to set."""
    dim: int
    """Width."""
    heads: int
    """Number of heads."""


class _NoModelError(Exception):
    """Sizes with which there is no model, where there should be one."""


class _EnoughError(Exception):
    """As many models as may be have been tried."""


class Search:
    """Looks for sizes with which a quantity is within a tolerance of a value.

    Args:
        measure: the quantity at some sizes; ``None`` where no model can have them.
        exists: whether a model can have some sizes, which is quicker.
        start: the sizes of the recipe, with which there is a model.
        value: to be reached, above 0.
        tolerance: largest deviation from it, as a share of it.

    Attributes:
        measured: the quantity at all sizes that were tried; the last ones on each side of the value are the nearest
            that can be reached, where the search ends with nothing.
    """

    def __init__(
        self,
        measure: Callable[[Sizes], float | None],
        exists: Callable[[Sizes], bool],
        start: Sizes,
        value: float,
        tolerance: float,
    ) -> None:
        self.start, self.value, self.tolerance = start, value, tolerance
        self.measured: dict[Sizes, float | None] = {}
        self._measure, self._exists = measure, exists
        self._is_free = True  # whether the feed-forward size changes anything

    def run(self) -> Sizes | None:
        """The first sizes, in the stated order, that are good enough; of one width the nearest to the value."""
        try:
            return next((sizes for sizes in self._proposed() if self._is_near(sizes)), None)
        except _EnoughError:
            return None

    def neighbours(self) -> tuple[Sizes | None, Sizes | None]:
        """The nearest sizes below the value and above it, of all that were tried."""
        found = {sizes: value for sizes, value in self.measured.items() if value is not None}
        below = [sizes for sizes, value in found.items() if value <= self.value]
        above = [sizes for sizes, value in found.items() if value >= self.value]
        return max(below, key=lambda s: found[s], default=None), min(above, key=lambda s: found[s], default=None)

    def at(self, sizes: Sizes) -> float | None:
        """The quantity at some sizes."""
        if sizes not in self.measured:
            if len(self.measured) >= MOST:
                raise _EnoughError
            self.measured[sizes] = self._measure(sizes)
        return self.measured[sizes]

    # The order ---------------------------------------------------------------------------------------------------

    def _proposed(self) -> Iterator[Sizes]:
        yield self.start
        least, most = (self._sure(self.start._replace(hidden=hidden)) for hidden in self._bounds(self.start.dim))
        self._is_free = least != most
        yield from self._of_width(self.start.dim, self.start.heads)
        for heads in sorted(range(1, 2 * self.start.heads + 1), key=lambda heads: abs(heads - self.start.heads)):
            try:
                yield from self._of_heads(heads)
            except _NoModelError:
                continue
            widths = {sizes.dim for sizes in self.measured}
            if len(widths) > 1 and len(set(self.measured.values())) == 1:  # nothing changes it
                return

    def _of_heads(self, heads: int) -> Iterator[Sizes]:
        """Sizes with some number of heads: at the old width, then at those where the feed-forward size keeps its
        proportion best, outwards, as far as the value can be reached at all."""
        if heads != self.start.heads and self._exists(self._in_proportion(self.start.dim, heads)):
            yield from self._of_width(self.start.dim, heads)
        step = self._step(heads)
        for place in self._outwards(step, heads):
            yield from self._of_width(place * step, heads)

    def _outwards(self, step: int, heads: int) -> Iterator[int]:
        """Widths, as multiples of a step, from the one where the quantity passes the value in proportion."""
        last = max(1, WIDEST * self.start.dim // step)
        first = max(1, self.start.dim // step)
        middle = crossing(lambda at: self._sure(self._in_proportion(at * step, heads)), first, last, self.value)
        down = itertools.takewhile(lambda at: self._is_high_enough(at * step, heads), range(middle, 0, -1))
        up = itertools.takewhile(lambda at: self._is_low_enough(at * step, heads), range(middle + 1, last + 1))
        for pair in itertools.zip_longest(down, up):
            yield from (place for place in pair if place is not None)

    def _of_width(self, dim: int, heads: int) -> Iterator[Sizes]:
        """The two feed-forward sizes at which the quantity passes the value, the nearer one first."""
        least, most = self._bounds(dim)
        if least == most:
            yield self._in_proportion(dim, heads)
            return
        below = last_at_most(lambda hidden: self._sure(Sizes(hidden, dim, heads)), least, most, self.value)
        found = [Sizes(hidden, dim, heads) for hidden in (below, below + 1) if least <= hidden <= most]
        yield from sorted(found, key=lambda sizes: abs(self._sure(sizes) - self.value))

    # What is allowed ---------------------------------------------------------------------------------------------

    def _proportional(self, dim: int) -> int:
        return max(1, round(self.start.hidden * dim / self.start.dim)) if self.start.hidden else 0

    def _in_proportion(self, dim: int, heads: int) -> Sizes:
        return Sizes(self._proportional(dim), dim, heads)

    def _bounds(self, dim: int) -> tuple[int, int]:
        middle = self._proportional(dim)
        if not self._is_free:
            return middle, middle
        return -(-middle // SHRINK), middle * GROW

    def _step(self, heads: int) -> int:
        """The least step from one width to the next at which there are models with so many heads."""
        for quantum in QUANTA:
            step = heads * quantum
            place = -(-self.start.dim // step)
            if all(self._exists(self._in_proportion(near * step, heads)) for near in (place, place + 1)):
                return step
        raise _NoModelError

    def _sure(self, sizes: Sizes) -> float:
        value = self.at(sizes)
        if value is None:
            raise _NoModelError
        return value

    def _is_low_enough(self, dim: int, heads: int) -> bool:
        least, _ = self._bounds(dim)
        return self._sure(Sizes(least, dim, heads)) <= self.value * (1 + self.tolerance)

    def _is_high_enough(self, dim: int, heads: int) -> bool:
        _, most = self._bounds(dim)
        return self._sure(Sizes(most, dim, heads)) >= self.value * (1 - self.tolerance)

    def _is_near(self, sizes: Sizes) -> bool:
        value = self.at(sizes)
        return value is not None and abs(value - self.value) <= self.tolerance * self.value


def crossing(value: Callable[[int], float], start: int, last: int, most: float) -> int:
    """The last place from 1 to ``last`` whose value is at most ``most``, near ``start`` perhaps; 0 where there is none.

    Values must not fall.
    """
    low = high = start
    while high < last and value(high) <= most:
        low, high = high, min(2 * high, last)
    while low > 1 and value(low) > most:
        low, high = low // 2, low
    return last_at_most(value, low, high, most)


def last_at_most(value: Callable[[int], float], low: int, high: int, most: float) -> int:
    """The last place from ``low`` to ``high`` whose value is at most ``most``; ``low`` - 1 where there is none.

    Values must not fall. Of those on a straight line four are asked for, of others at most three
    times what halving takes.
    """
    if value(low) > most:
        return low - 1
    if value(high) <= most:
        return high
    slow = 0  # steps in a row that left more than half
    while high - low > 1:
        below, above, before = value(low), value(high), high - low
        share = (most - below) / (above - below) if slow < 2 else 0.5
        place = min(max(low + math.floor(share * before), low + 1), high - 1)
        low, high = (place, high) if value(place) <= most else (low, place)
        slow = slow + 1 if 2 * (high - low) > before else 0
    return low
