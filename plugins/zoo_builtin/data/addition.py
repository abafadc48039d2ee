"""Add two numbers of equally many digits, digit by digit.

    prompt   a_1 ... a_n + b_1 ... b_n =        most significant digits first, leading zeros kept
    answer   the n + 1 digits of a + b, the least significant first (``reversed``) or last (``plain``)

In reversed order each digit follows from two of the prompt's and a carry that was just used (Lee et al. 2023, "Teaching
arithmetic to small transformers", arXiv:2307.03381); in plain order the first one needs all of them. With
``test_length`` it is the usual test of length generalisation.

Chance: 1 / 10 for each digit but the most significant one, a carry, which is 0 a little oftener than 1.
Axes: B rows, P tokens of a prompt, N digits of a number, A digits of an answer.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from zoo.contracts.data import Split
from zoo.data.growing import Growing
from zoo.data.row_random import RowRandom
from zoo.data.synthetic import Made, written_out

__all__ = ["Addition"]

_PLUS, _EQUALS = 10, 11


@final
class Addition(Growing):
    """Sums; a sample's length is the number of digits of each of its two numbers."""

    vocab_size, blank = 12, _EQUALS

    @dataclasses.dataclass(kw_only=True)
    class Config(Growing.Config):
        """How long numbers are, and how their sum is written."""

        length: int = 6
        """Most digits of a number in training."""
        order: Literal["reversed", "plain"] = "reversed"
        """Order of the sum's digits: from the least significant one, or from the most significant one."""

    def __init__(self, config: Any, *, cache: Path) -> None:
        super().__init__(config, cache=cache)
        self.widths = {split: 3 * longest + 2 for split, (_, longest) in self.ranges.items()}
        self.bins = {"length": self.length_bins}

    def make(self, random: RowRandom, split: Split) -> Made:
        """Samples, each with its answer."""
        longest = self.ranges[split][1]
        length_B = self.draw_lengths(random, split)
        length_B1, place_A = length_B[:, None], np.arange(longest + 1)
        given_BA = place_A < length_B1
        first_BA, second_BA = (np.where(given_BA, random.below(10, longest + 1), 0) for _ in range(2))
        sum_BA, carry_B = np.zeros_like(first_BA), np.zeros(random.rows, dtype=np.int64)
        for place in place_A:  # the least significant digit first
            carry_B, sum_BA[:, place] = np.divmod(first_BA[:, place] + second_BA[:, place] + carry_B, 10)
        place_P = np.arange(2 * longest + 2)
        prompt_BP = np.where(
            place_P < length_B1,
            np.take_along_axis(first_BA, (length_B1 - 1 - place_P).clip(min=0), axis=1),
            np.take_along_axis(second_BA, (2 * length_B1 - place_P).clip(0, longest), axis=1),
        )
        prompt_BP = np.where(place_P == length_B1, _PLUS, np.where(place_P == 2 * length_B1 + 1, _EQUALS, prompt_BP))
        if self.config.order == "plain":
            sum_BA = np.take_along_axis(sum_BA, (length_B1 - place_A).clip(min=0), axis=1)
        made = written_out(prompt_BP, 2 * length_B + 2, sum_BA, length_B + 1, self.widths[split])
        no_carry_B = (1 + 10.0**-length_B) / 2
        return Made(**made, chance=(length_B / 10 + no_carry_B) / (length_B + 1), facts={"length": length_B})

    def answer(self, ids: list[int]) -> list[int]:
        """The sum of Python's own whole numbers, written from the token that asks on."""
        plus, ask = ids.index(_PLUS), ids.index(_EQUALS)
        first, second = ("".join(map(str, digits)) for digits in (ids[:plus], ids[plus + 1 : ask]))
        digits = [int(digit) for digit in f"{int(first) + int(second):0{plus + 1}d}"]
        return [0] * ask + (digits[::-1] if self.config.order == "reversed" else digits)
