"""Whether the number of ones among some bits is odd.

    prompt   b_1 ... b_n, then a token that asks
    answer   (b_1 + ... + b_n) mod 2

With ``running`` the answer is asked for at every bit that ends a string as long as the part's shortest one, so that
there is more to learn from, and in the test nothing that training has seen. The function changes with
each single bit, which softmax attention at any fixed size answers less and less surely as n grows (Hahn 2020,
arXiv:1906.06755), while one bit of state is enough for a recurrence: with ``test_length`` a transformer that does well
in training is expected at chance. Hence it is the negative control of length generalisation.

Chance: 1 / 2. Answers aren't in the input, so a model that looks ahead can be asked too.
Axes: B rows, T tokens.
"""

from __future__ import annotations

import dataclasses
from itertools import accumulate
from pathlib import Path
from typing import Any, final

import numpy as np

from zoo.contracts.data import Split
from zoo.data.growing import Growing
from zoo.data.row_random import RowRandom
from zoo.data.synthetic import NO_TARGET, Made

__all__ = ["Parity"]

_ASK = 2


@final
class Parity(Growing):
    """Bits, and their sum modulo 2; a sample's length is the number of bits."""

    vocab_size, blank = 3, _ASK

    @dataclasses.dataclass(kw_only=True)
    class Config(Growing.Config):
        """How many bits, and where the answer is asked for."""

        running: bool = False
        """Whether the parity so far is asked for at every bit from the shortest length on, in place of the whole one
        behind the last."""

    def __init__(self, config: Any, *, cache: Path) -> None:
        super().__init__(config, cache=cache)
        self.widths = {split: longest + (not config.running) for split, (_, longest) in self.ranges.items()}
        self.bins = {"length": self.length_bins}

    def make(self, random: RowRandom, split: Split) -> Made:
        """Samples, padded on the right."""
        length_B, width = self.draw_lengths(random, split), self.widths[split]
        length_B1, place_T = length_B[:, None], np.arange(width)
        bit_BT = np.where(place_T < length_B1, random.below(2, width), 0)
        parity_BT = bit_BT.cumsum(axis=1) % 2
        asked_BT = place_T == length_B1
        if self.config.running:
            asked_BT = (place_T >= self.ranges[split][0] - 1) & (place_T < length_B1)
        ids_BT = bit_BT if self.config.running else np.where(asked_BT, _ASK, bit_BT)
        return Made(
            ids=ids_BT,
            targets=np.where(asked_BT, parity_BT, NO_TARGET),
            lengths=length_B + (not self.config.running),
            chance=0.5,
            facts={"length": length_B},
        )

    def answer(self, ids: list[int]) -> list[int]:
        """The parity of the bits up to each place."""
        return list(accumulate((token % 2 for token in ids), lambda odd, bit: odd ^ bit))
