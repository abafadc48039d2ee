"""Tasks that are learned at some lengths and measured at others: length generalisation.

    training                from ``shortest`` to ``length``
    validation and test     from ``test_shortest`` to ``test_length``

Each length is as likely as another. Without the last two knobs all parts have the lengths of training; with
``test_length`` alone, validation and test begin one above what training has seen.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from zoo.contracts.data import Split
from zoo.data.row_random import RowRandom
from zoo.data.synthetic import Synthetic

_BINS = 4


class Growing(Synthetic):
    """A task whose samples have a length; its subclass says in its docstring of what.

    Attributes:
        ranges: shortest and longest of each part.
    """

    least = 1
    """The smallest length that makes sense."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Synthetic.Config):
        """How long samples are."""

        shortest: int = 1
        """Shortest training sample."""
        length: int = 20
        """Longest training sample."""
        test_shortest: int | None = None
        """Shortest of validation and test; null means one above ``length`` where ``test_length`` is longer than that,
        else ``shortest``."""
        test_length: int | None = None
        """Longest of validation and test; null means ``length``."""

    def __init__(self, config: Any, *, cache: Path) -> None:
        super().__init__(config, cache=cache)
        test_length = config.length if config.test_length is None else config.test_length
        begin = config.length + 1 if test_length > config.length else config.shortest
        test_shortest = begin if config.test_shortest is None else config.test_shortest
        if not self.least <= config.shortest <= config.length:
            raise ValueError(
                f"lengths go from shortest to length, and begin at {self.least}: got {config.shortest} to "
                f"{config.length}"
            )
        if not config.shortest <= test_shortest <= test_length or test_length < config.length:
            raise ValueError(
                f"lengths of validation and test, {test_shortest} to {test_length}, must begin at shortest "
                f"({config.shortest}) or later and end at length ({config.length}) or later"
            )
        others = (test_shortest, test_length)
        self.ranges: dict[Split, tuple[int, int]] = {
            "train": (config.shortest, config.length),
            "validation": others,
            "test": others,
        }
        beyond = max(test_shortest, config.length + 1)
        self.length_bins = [*ends(config.shortest, config.length), *ends(beyond, test_length)]

    def draw_lengths(self, random: RowRandom, split: Split) -> np.ndarray:
        """(B,) lengths of samples of a part."""
        shortest, longest = self.ranges[split]
        return shortest + random.below(longest - shortest + 1, 1)[:, 0]


def ends(first: int, last: int) -> list[int]:
    """Largest numbers of up to four runs of about equal size that make up ``first`` to ``last``; none if it's empty."""
    numbers = range(first, last + 1)
    runs = min(_BINS, len(numbers))
    return [numbers[(run + 1) * len(numbers) // runs - 1] for run in range(runs)]
