"""Few rows in which every pair of values of any two factors occurs: a pairwise covering array, made greedily."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

Row = tuple[str, ...]
Pair = tuple[int, str, int, str]
"""Factor and value, another factor and value."""


def pairs_of(row: Row) -> Iterator[Pair]:
    """All pairs of a row's values."""
    for (i, left), (j, right) in itertools.combinations(enumerate(row), 2):
        yield i, left, j, right


def covering(factors: Sequence[Sequence[str]], seeds: Sequence[Row], allowed: Callable[[Row], bool]) -> list[Row]:
    """Rows that cover every pair of values that an allowed row can cover.

    Args:
        factors: the values of each factor.
        seeds: values of the first factors, in combinations that are allowed; every row begins with one of these.
        allowed: whether a whole row may be used.

    Each seed whose own pairs aren't all covered yet gets the rest that covers most new pairs; then each pair that
    is left gets a row. Cohen et al. 1997, "The AETG system", section 3.2.
    """
    lead = len(seeds[0]) if seeds else 0
    rests = list(itertools.product(*factors[lead:]))
    covered: set[Pair] = set()
    rows: list[Row] = []

    def gain(row: Row) -> int:
        return sum(pair not in covered for pair in pairs_of(row))

    def take(row: Row) -> None:
        rows.append(row)
        covered.update(pairs_of(row))

    for turn, seed in enumerate(seeds):
        if gain(seed):
            around = rests[turn % len(rests) :] + rests[: turn % len(rests)]
            candidates = [row for rest in around if allowed(row := seed + rest)]
            if candidates:
                take(max(candidates, key=gain))
    for seed in seeds:
        for rest in rests:
            row = seed + rest
            if gain(row) and allowed(row):
                take(row)
    return rows
