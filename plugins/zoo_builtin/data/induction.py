"""Induction heads, once or k times in a row: find where this symbol last stood, and say what came behind it.

    find(i) = the last j <= i with x_(j-1) = x_i,   answer at i = x_find(find(... find(i))), k times

One hop is the induction head of Elhage et al. 2021, "A mathematical framework for transformer circuits": ... A B ... A
is followed by B. k hops are the task of Sanford, Hsu and Telgarsky 2024, "Transformers, parallel computation, and
logarithmic depth", arXiv:2402.09268, section 4, which takes a transformer a depth that grows with log k, and a
recurrence one that grows with k or a large state. A first token says how many hops are meant; the answer is asked for
wherever there is one.

Chance: 1 / symbols. An answer depends on nothing behind its place, so a model that looks ahead gains nothing by it.
Axes: B rows, T tokens of the symbols.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, final

import numpy as np

from zoo.contracts.data import Split
from zoo.data.row_random import RowRandom
from zoo.data.synthetic import NO_TARGET, Made, Synthetic

__all__ = ["Induction"]


@final
class Induction(Synthetic):
    """Random symbols, and at each of them what follows its last appearance, or further on."""

    blank = 0

    @dataclasses.dataclass(kw_only=True)
    class Config(Synthetic.Config):
        """How far to go, in what."""

        hops: list[int] = dataclasses.field(default_factory=lambda: [1])
        """Numbers of hops; a sample has one of these."""
        symbols: int = 8
        """Different symbols; fewer make hops shorter."""
        length: int = 64
        """Symbols of a sample."""
        test_length: int | None = None
        """Symbols of a sample of validation and test; null means ``length``."""

    def __init__(self, config: Any, *, cache: Path) -> None:
        super().__init__(config, cache=cache)
        test_length = config.length if config.test_length is None else config.test_length
        if not config.hops or min(config.hops) < 1 or len(set(config.hops)) < len(config.hops):
            raise ValueError(f"hops must list different numbers from 1, got {config.hops}")
        if config.symbols < 2:
            raise ValueError(f"there must be at least 2 symbols, got {config.symbols}")
        if min(config.length, test_length) <= max(config.hops):
            raise ValueError(
                f"{max(config.hops)} hops need more symbols than that, length is {config.length} and test_length "
                f"{test_length}"
            )
        self.vocab_size = config.symbols + len(config.hops)
        self.widths = {"train": config.length + 1, "validation": test_length + 1, "test": test_length + 1}
        self.bins = {"hops": sorted(config.hops)}

    def make(self, random: RowRandom, split: Split) -> Made:
        """Samples: a token for the number of hops, then the symbols."""
        length, choices = self.widths[split] - 1, np.array(self.config.hops)
        choice_B = random.below(len(choices), 1)
        hops_B1 = choices[choice_B]
        symbol_BT = random.below(self.config.symbols, length)
        behind_BV = np.full((random.rows, self.config.symbols), -1)
        find_BT, row_B = np.empty_like(symbol_BT), np.arange(random.rows)
        for place in range(length):
            if place:
                behind_BV[row_B, symbol_BT[:, place - 1]] = place
            find_BT[:, place] = behind_BV[row_B, symbol_BT[:, place]]
        at_BT = np.broadcast_to(np.arange(length), symbol_BT.shape)
        for hop in range(int(choices.max())):
            next_BT = np.where(at_BT < 0, -1, np.take_along_axis(find_BT, at_BT.clip(min=0), axis=1))
            at_BT = np.where(hop < hops_B1, next_BT, at_BT)
        answer_BT = np.take_along_axis(symbol_BT, at_BT.clip(min=0), axis=1)
        return Made(
            ids=np.concatenate([self.config.symbols + choice_B, symbol_BT], axis=1),
            targets=np.concatenate(
                [np.full_like(choice_B, NO_TARGET), np.where(at_BT < 0, NO_TARGET, answer_BT)], axis=1
            ),
            chance=1 / self.config.symbols,
            facts={"hops": hops_B1[:, 0]},
        )

    def answer(self, ids: list[int]) -> list[int]:
        """By the definition: look back from each place, as often as the first token says."""
        hops, symbols = self.config.hops[ids[0] - self.config.symbols], ids[1:]
        return [0, *(self._hop(symbols, place, hops) for place in range(len(symbols)))]

    def _hop(self, symbols: list[int], place: int, hops: int) -> int:
        for _ in range(hops):
            earlier = [j for j in range(1, place + 1) if symbols[j - 1] == symbols[place]]
            if not earlier:
                return 0
            place = earlier[-1]
        return symbols[place]
