"""Contract of a data set: what it holds, and any batch of it as a pure function of which samples are asked for."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from zoo.config import Part

if TYPE_CHECKING:
    import numpy as np
    import torch

    from zoo.contracts.tokenizer import Tokenizer

Split = Literal["train", "validation", "test"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """What a model must know of the data before it is built; ``None`` where it doesn't apply."""

    vocab_size: int | None = None
    """Number of token ids."""
    max_length: int | None = None
    """Longest sequence that a batch holds, in tokens."""
    classes: int | None = None
    """Number of classes."""
    image_size: tuple[int, int] | None = None
    """Height and width, in pixels."""
    channels: int | None = None
    """Colour channels of an image."""


class Draw(NamedTuple):
    """Which samples a batch is made of. Everything random about a sample is drawn from this and nothing else."""

    samples: np.ndarray
    """(B,) int64, sample ids, each at least 0 and below ``size(split)``; -1 is an empty row, no target in it."""
    epochs: np.ndarray
    """(B,) int64, how often each sample has been visited before."""
    seed: int
    """The recipe's seed."""


class Data(Part, ABC):
    """A data set with train, validation and test parts, disjoint by document, fixed by its content alone.

    Made as ``Data(config, cache=folder, **slots)``; cheap until ``prepare`` is called. The order of samples
    isn't its business: the training loop's batch plan is a pure function of (seed, step).
    """

    @dataclasses.dataclass(kw_only=True)
    class Config:
        """Knobs that every data set has."""

        batch_size: int = 32
        """Rows of one OPTIMIZER STEP, over all devices and micro-batches."""

    def __init__(self, config: Any, *, cache: Path) -> None:
        self.config, self.cache = config, cache

    @abstractmethod
    def prepare(self) -> None:
        """Read, check and cache the data once; safe when several processes do it at the same time.

        Raises:
            UserError: a missing, empty, unreadable or too short source, with its path and numbers.
        """

    @abstractmethod
    def describe(self) -> Description:
        """Sizes that the model takes from the data; after ``prepare``."""

    @abstractmethod
    def size(self, split: Split) -> int:
        """Number of samples in a part; after ``prepare``."""

    @abstractmethod
    def batch(self, draw: Draw, split: Split) -> dict[str, torch.Tensor]:
        """The batch of a draw, every tensor batch first, the keys that the tasks for this data expect."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Hash of the content and of everything that shapes a sample (splits, tokenizer, length)."""

    def tokenizer(self) -> Tokenizer | None:
        """The fitted tokenizer of a text set, kept in the run folder; ``None`` where there is no text."""
        return None
