"""A needle in a haystack: facts among many words of no meaning, and at the end one of them is asked for.

    prompt   w w w ... [fact] key v_1 ... v_L w w ... [fact] key v_1 ... v_L w ...   [ask] key
    answer   v_1 ... v_L of the fact with this key

Each sample has some facts with different keys, the one that is asked for among them; words, keys and values are
different tokens. Kamradt 2023, "Needle in a haystack", does this to language models in words; with tokens of our own it
can be learned by a small model, and what is measured is how far back one looks and past how much, by where the fact
stands (``depth``, in percent) and by length.

Chance: 1 / values for each token.
Axes: B rows, P tokens of a prompt, M facts, L tokens of a value.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, final

import numpy as np

from zoo.contracts.data import Split
from zoo.data.growing import Growing
from zoo.data.row_random import RowRandom
from zoo.data.synthetic import Made, written_out

__all__ = ["Needle"]


@final
class Needle(Growing):
    """Facts in a haystack; a sample's length is that of the haystack with the facts in it."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Growing.Config):
        """How large the haystack is, and what is hidden in it."""

        shortest: int = 32
        """Shortest haystack of training."""
        length: int = 64
        """Longest haystack of training."""
        needles: int = 2
        """Facts in a haystack; one of them is asked for."""
        value_length: int = 2
        """Tokens of a fact's value."""
        words: int = 64
        """Different words of the haystack."""
        keys: int = 16
        """Different keys."""
        values: int = 16
        """Different tokens of values."""

    def __init__(self, config: Any, *, cache: Path) -> None:
        super().__init__(config, cache=cache)
        for name, least in {"needles": 1, "value_length": 1, "words": 1, "values": 2}.items():
            if getattr(config, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(config, name)}")
        if config.keys < config.needles:
            raise ValueError(f"{config.needles} needles need as many keys, there are {config.keys}")
        self.size_of_needle = 2 + config.value_length
        if config.shortest < config.needles * self.size_of_needle:
            raise ValueError(
                f"{config.needles} needles take {config.needles * self.size_of_needle} tokens, the shortest haystack "
                f"has {config.shortest}"
            )
        self.first_key = config.words
        self.first_value = self.first_key + config.keys
        self.fact = self.first_value + config.values
        self.blank = self.fact + 1
        self.vocab_size = self.fact + 2
        self.widths = {split: longest + 1 + config.value_length for split, (_, longest) in self.ranges.items()}
        self.bins = {"length": self.length_bins, "depth": [25, 50, 75, 100]}

    def make(self, random: RowRandom, split: Split) -> Made:
        """Samples, each with its answer."""
        config, longest, size = self.config, self.ranges[split][1], self.size_of_needle
        length_B, row_B = self.draw_lengths(random, split), np.arange(random.rows)
        prompt_BP = random.below(config.words, longest + 2)
        key_BM = self.first_key + random.distinct(config.needles, config.keys)
        value_BN = self.first_value + random.below(config.values, config.needles * config.value_length)
        value_BML = value_BN.reshape(-1, config.needles, config.value_length)
        items_B = length_B - config.needles * (size - 1)  # words and whole facts
        items = longest - config.needles * (size - 1)
        chosen_BI = random.subset(np.full_like(items_B, config.needles), items_B, items)
        start_BM = np.nonzero(chosen_BI)[1].reshape(-1, config.needles) + np.arange(config.needles) * (size - 1)
        for number in range(config.needles):
            start_B = start_BM[:, number]
            prompt_BP[row_B, start_B], prompt_BP[row_B, start_B + 1] = self.fact, key_BM[:, number]
            for place in range(config.value_length):
                prompt_BP[row_B, start_B + 2 + place] = value_BML[:, number, place]
        asked_B = random.below(config.needles, 1)[:, 0]
        prompt_BP[row_B, length_B], prompt_BP[row_B, length_B + 1] = self.blank, key_BM[row_B, asked_B]
        answer_BL, count_B = value_BML[row_B, asked_B], np.full_like(length_B, config.value_length)
        made = written_out(prompt_BP, length_B + 2, answer_BL, count_B, self.widths[split])
        depth_B = 100 * start_BM[row_B, asked_B] // (length_B - size).clip(min=1)
        return Made(**made, chance=1 / config.values, facts={"length": length_B, "depth": depth_B})

    def answer(self, ids: list[int]) -> list[int]:
        """The value of the fact with the key that is asked for, written from there on."""
        ask = ids.index(self.blank) + 1
        place = next(i for i in range(ask) if ids[i] == self.fact and ids[i + 1] == ids[ask])
        return [0] * ask + ids[place + 2 : place + 2 + self.config.value_length]
