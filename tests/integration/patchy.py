"""Rows whose targets are anything from none to all, for tests of how losses are normalized.

A sample's tokens are a function of its id alone; every third sample has no target at all.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
import torch

from zoo.contracts.data import Data, Description, Draw, Split

__all__ = ["Patchy"]


class Patchy(Data):
    """Repeating patterns of a small alphabet with uneven targets."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Data.Config):
        """Sizes."""

        length: int = 12
        """Tokens in a row."""
        samples: int = 50
        """Rows of the train part."""

    def __init__(self, config: Any, *, cache: Any) -> None:
        super().__init__(config, cache=cache)
        self.prepared = False

    def prepare(self) -> None:
        """Nothing to read."""
        self.prepared = True

    def describe(self) -> Description:
        """Eleven letters."""
        return Description(vocab_size=11, max_length=self.config.length)

    def size(self, split: Split) -> int:
        """A validation part that no batch size divides."""
        return {"train": self.config.samples, "validation": 13, "test": 5}[split]

    def batch(self, draw: Draw, split: Split) -> dict[str, torch.Tensor]:
        """Rows of a draw."""
        first = {"train": 0, "validation": 1000, "test": 2000}[split]
        rows = [self._row(int(sample), first) for sample in draw.samples]
        ids, targets = (torch.from_numpy(np.stack(part)) for part in zip(*rows, strict=True))
        return {"ids": ids, "targets": targets}

    def fingerprint(self) -> str:
        """Hash of the sizes."""
        return hashlib.sha256(repr((self.config.length, self.config.samples)).encode()).hexdigest()

    def _row(self, sample: int, first: int) -> tuple[np.ndarray, np.ndarray]:
        length = self.config.length
        if sample < 0:
            return np.zeros(length, np.int64), np.full(length, -100)
        numbers = np.random.default_rng(first + sample)
        text = (numbers.integers(11) + numbers.integers(1, 4) * np.arange(length + 1)) % 11
        targets = np.full(length, -100)
        if sample % 3:
            chosen = numbers.permutation(length)[: numbers.integers(0, length + 1)]
            targets[chosen] = text[1:][chosen]
        return text[:-1].copy(), targets
