"""Arithmetic progressions: given a few terms, the next one follows; change what ``batch`` says.

    x_k = (start + k * difference) mod vocab_size

Each progression is in one part only, whatever the seed.
"""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import torch

from zoo.contracts.data import Data, Description, Draw, Split

__all__ = ["Mine"]


class Mine(Data):
    """Sample i of a part is one pair (start, difference); a batch depends on its draw and on nothing else."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Data.Config):
        """Knobs; each has a docstring, which the tables show."""

        vocab_size: int = 61
        """Number of ids."""
        length: int = 16
        """Tokens in a sample."""

    def prepare(self) -> None:
        """Nine parts of ten for training; real data is read, checked and cached here."""
        pairs = np.random.default_rng(0).permutation(self.config.vocab_size**2)
        tenth = len(pairs) // 20
        self.parts = {"validation": pairs[:tenth], "test": pairs[tenth : 2 * tenth], "train": pairs[2 * tenth :]}

    def describe(self) -> Description:
        """Sizes that the model takes from here."""
        return Description(vocab_size=self.config.vocab_size, max_length=self.config.length)

    def size(self, split: Split) -> int:
        """Number of progressions in a part."""
        return len(self.parts[split])

    def batch(self, draw: Draw, split: Split) -> dict[str, torch.Tensor]:
        """``ids`` (B, T), and ``targets`` (B, T), the id that follows each; -100 in rows that are empty."""
        pairs = self.parts[split][draw.samples.clip(min=0)]
        start, difference = np.divmod(pairs[:, None], self.config.vocab_size)
        terms = torch.from_numpy((start + difference * np.arange(self.config.length + 1)) % self.config.vocab_size)
        empty = torch.from_numpy(draw.samples < 0)[:, None]
        return {"ids": terms[:, :-1], "targets": terms[:, 1:].masked_fill(empty, -100)}

    def fingerprint(self) -> str:
        """Hash of all that decides the samples."""
        return hashlib.sha256(f"progressions {dataclasses.asdict(self.config)}".encode()).hexdigest()
