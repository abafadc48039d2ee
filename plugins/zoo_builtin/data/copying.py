"""Write symbols again: as they came (copying), out of noise (selective copying), backwards, or sorted.

    prompt   x_1 ... x_n, and noise behind or between them, then a token that asks
    answer   x_1 ... x_n, or x_n ... x_1, or the same symbols in rising order

Copying over a gap is the memory task of Arjovsky et al. 2016, arXiv:1511.06464, section 4.1; with the noise between
the symbols it is selective copying (Gu and Dao 2023, "Mamba", arXiv:2312.00752, section 4.1.1), which takes a choice by
content and not by place. With ``test_length`` all of them are tests of length generalisation. How long the answer is
isn't asked: it has no end mark.

Chance: 1 / symbols; sorted, it is that of guessing each order statistic's most likely symbol.
Axes: B rows, P tokens of a prompt, A tokens of an answer.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from zoo.contracts.data import Split
from zoo.data.growing import Growing
from zoo.data.row_random import RowRandom
from zoo.data.synthetic import Made, written_out

__all__ = ["Copying"]


@final
class Copying(Growing):
    """Symbols to write again; a sample's length is their number."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Growing.Config):
        """What is to be written, and what is in the way."""

        symbols: int = 16
        """Different symbols."""
        order: Literal["as_given", "reversed", "sorted"] = "as_given"
        """How the symbols are to be written."""
        noise: int = 0
        """Tokens of noise in a prompt."""
        noise_place: Literal["behind", "between"] = "behind"
        """``behind`` the symbols, so that there is a gap, or ``between`` them, at random (selective copying)."""

    def __init__(self, config: Any, *, cache: Path) -> None:
        super().__init__(config, cache=cache)
        if config.symbols < 2:
            raise ValueError(f"there must be at least 2 symbols, got {config.symbols}")
        if config.noise < 0:
            raise ValueError(f"noise must be at least 0 tokens, got {config.noise}")
        self.noise, self.blank = config.symbols, config.symbols + 1
        self.vocab_size = config.symbols + 2
        self.widths = {split: 2 * longest + config.noise for split, (_, longest) in self.ranges.items()}
        self.bins = {"length": self.length_bins}
        longest = max(longest for _, longest in self.ranges.values())
        self._chances = np.array([0.0] + [_chance(n, config.symbols, config.order) for n in range(1, longest + 1)])

    def make(self, random: RowRandom, split: Split) -> Made:
        """Samples, each with its answer."""
        longest, noise = self.ranges[split][1], self.config.noise
        length_B = self.draw_lengths(random, split)
        symbol_BA = random.below(self.config.symbols, longest)
        size_B = length_B + noise
        place_P = np.arange(longest + noise + 1)
        told_BP = place_P < length_B[:, None]
        if noise and self.config.noise_place == "between":
            told_BP = random.subset(length_B, size_B, len(place_P))
        turn_BP = (told_BP.cumsum(axis=1) - 1).clip(min=0)
        prompt_BP = np.where(told_BP, np.take_along_axis(symbol_BA, turn_BP.clip(max=longest - 1), axis=1), self.noise)
        prompt_BP[place_P == size_B[:, None]] = self.blank
        answer_BA = self._ordered(symbol_BA, length_B)
        made = written_out(prompt_BP, size_B + 1, answer_BA, length_B, self.widths[split])
        return Made(**made, chance=self._chances[length_B], facts={"length": length_B})

    def _ordered(self, symbol_BA: np.ndarray, length_B: np.ndarray) -> np.ndarray:
        place_BA = np.broadcast_to(np.arange(symbol_BA.shape[1]), symbol_BA.shape)
        if self.config.order == "reversed":
            return np.take_along_axis(symbol_BA, (length_B[:, None] - 1 - place_BA).clip(min=0), axis=1)
        if self.config.order == "sorted":
            return np.sort(np.where(place_BA < length_B[:, None], symbol_BA, self.config.symbols), axis=1)
        return symbol_BA

    def answer(self, ids: list[int]) -> list[int]:
        """The symbols before the token that asks, put in order, from there on."""
        ask = ids.index(self.blank)
        told = [token for token in ids[:ask] if token < self.config.symbols]
        ordered = {"as_given": told, "reversed": told[::-1], "sorted": sorted(told)}[self.config.order]
        return [0] * ask + ordered


def _chance(length: int, symbols: int, order: str) -> float:
    """Mean over places of the most likely symbol's probability."""
    if order != "sorted":
        return 1 / symbols
    best = [0.0] * length
    before = [0.0] * length
    for symbol in range(1, symbols + 1):
        share = symbol / symbols
        counts = [math.comb(length, k) * share**k * (1 - share) ** (length - k) for k in range(length + 1)]
        for place in range(length):  # at most this symbol at a place: more than ``place`` of them all are at most it
            most = sum(counts[place + 1 :])
            best[place], before[place] = max(best[place], most - before[place]), most
    return sum(best) / length
