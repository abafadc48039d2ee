"""Multi-query associative recall (MQAR): pairs of a key and a value, then each key again, whose value is asked for.

    k1 v1 k2 v2 ... kP vP   filler, and among it each key once more
    target at the second place of a key = the value behind its first one; nothing is asked elsewhere

Keys are different tokens of the lower half of the vocabulary, values of the upper one. Filler is any token but the
sample's keys, so each question has one answer. The gap between the pairs and a question has a power law, as the
distance of repeated words in text does. A model with a state of fixed size must keep P pairs in it; attention looks
them up. Arora et al. 2023, "Zoology: measuring and improving recall in efficient language models", arXiv:2312.04927,
section 3.

Chance: 1 / values; one who guesses among the sample's own values has 1 / P. Answers aren't in the input, so a model
that looks ahead can be asked too.
Axes: B rows, T tokens, P pairs, G gaps.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, final

import numpy as np

from zoo.contracts.data import Split
from zoo.data.row_random import RowRandom
from zoo.data.synthetic import NO_TARGET, Made, Synthetic

__all__ = ["MQAR"]


@final
class MQAR(Synthetic):
    """Pairs, and a question for each of them."""

    blank = 0

    @dataclasses.dataclass(kw_only=True)
    class Config(Synthetic.Config):
        """How much is to be kept in mind, and for how long."""

        vocab_size: int = 8192
        """Token ids: the lower half are keys, the others values."""
        length: int = 64
        """Tokens of a sample; at least four for each pair."""
        pairs: list[int] = dataclasses.field(default_factory=lambda: [4])
        """Numbers of pairs; a sample has one of these."""
        test_length: int | None = None
        """Tokens of a sample of validation and test; null means ``length``."""
        test_pairs: list[int] | None = None
        """Numbers of pairs of validation and test; null means ``pairs``."""
        power: float = 0.01
        """Exponent a of the gaps' law g^(a - 1): 1 makes all gaps alike, below 1 short ones are more frequent."""

    def __init__(self, config: Any, *, cache: Path) -> None:
        super().__init__(config, cache=cache)
        self.vocab_size, self.keys = config.vocab_size, config.vocab_size // 2
        test_length = config.length if config.test_length is None else config.test_length
        test_pairs = config.pairs if config.test_pairs is None else config.test_pairs
        self.widths = {"train": config.length, "validation": test_length, "test": test_length}
        self.pairs = {"train": config.pairs, "validation": test_pairs, "test": test_pairs}
        self._check(config.pairs, config.length, "pairs")
        self._check(test_pairs, test_length, "test_pairs")
        if config.power <= 0:
            raise ValueError(f"power must be above 0, got {config.power}")
        self.bins = {"pairs": sorted({*config.pairs, *test_pairs})}

    def _check(self, pairs: list[int], length: int, name: str) -> None:
        if not pairs or min(pairs) < 1:
            raise ValueError(f"{name} must list numbers from 1, got {pairs}")
        if 4 * max(pairs) > length:
            raise ValueError(
                f"{max(pairs)} pairs and their questions take {4 * max(pairs)} tokens, a sample has {length}"
            )
        if max(pairs) > self.keys:
            raise ValueError(f"{max(pairs)} pairs need as many keys; a vocabulary of {self.vocab_size} has {self.keys}")

    def make(self, random: RowRandom, split: Split) -> Made:
        """Samples, T tokens each."""
        length, choices = self.widths[split], np.array(self.pairs[split])
        most = int(choices.max())
        pairs_B = choices[random.below(len(choices), 1)[:, 0]]
        key_BP = random.distinct(most, self.keys)
        value_BP = self.keys + random.distinct(most, self.vocab_size - self.keys)
        gap_BP = random.weighted(most, self._gap_weights(pairs_B, length))
        question_BP = 2 * pairs_B[:, None] + 2 * gap_BP
        ids_BT = self._filler(random, key_BP, length)
        targets_BT = np.full_like(ids_BT, NO_TARGET)
        row, pair = np.nonzero(np.arange(most) < pairs_B[:, None])
        key, value, question = key_BP[row, pair], value_BP[row, pair], question_BP[row, pair]
        ids_BT[row, 2 * pair], ids_BT[row, 2 * pair + 1], ids_BT[row, question] = key, value, key
        targets_BT[row, question] = value
        chance = 1 / (self.vocab_size - self.keys)
        return Made(ids=ids_BT, targets=targets_BT, chance=chance, facts={"pairs": pairs_B})

    def _gap_weights(self, pairs_B: np.ndarray, length: int) -> np.ndarray:
        """(B, G) int64: g^(power - 1), rounded to whole numbers that add up exactly; 0 where a sample ends before."""
        gaps = length // 2 - min(min(choice) for choice in self.pairs.values())
        weights_G = np.rint(2.0**30 * np.arange(1, gaps + 1) ** (self.config.power - 1.0)).astype(np.int64).clip(min=1)
        return np.where(np.arange(gaps) < (length // 2 - pairs_B)[:, None], weights_G, 0)

    def _filler(self, random: RowRandom, key_BP: np.ndarray, length: int) -> np.ndarray:
        """(B, T) int64: any token but those of ``key_BP``."""
        ids_BT = random.below(self.vocab_size - key_BP.shape[1], length)
        for key_B in np.sort(key_BP, axis=1).T:
            ids_BT += ids_BT >= key_B[:, None]
        return ids_BT

    def answer(self, ids: list[int]) -> list[int]:
        """Behind each token's first place."""
        return [ids[ids.index(token) + 1] if ids.index(token) + 1 < len(ids) else 0 for token in ids]
