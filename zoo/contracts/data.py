"""Contract of a data set: what it holds, and any batch of it as a pure function of which samples are asked for."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from zoo.config import Part
from zoo.errors import UserError

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

    def labels(self) -> Sequence[str] | None:
        """Names of the classes by their number, kept in the run folder; ``None`` where there are no classes."""
        return None

    def lengths(self, split: Split) -> np.ndarray | None:
        """Tokens of each sample of a part, (size,) integers, so that samples of like lengths share batches.

        ``None`` where all samples are equally long. What it costs to pad a sample, not a promise: for pairs the
        tokens of both sides.
        """
        del split
        return None

    def slices(self) -> Sequence[str]:
        """Names of kinds of samples that are measured apart too, the same for every part; after ``prepare``.

        ``pairs_8``: what is told apart, and the largest number that belongs to the slice. A batch then has ``slices``
        (B, len) bool, which of them each sample is in; an empty row is in none.
        """
        return ()

    def chance(self, split: Split) -> float | None:
        """Accuracy of the best guess that knows where a target stands and not what the input says; after ``prepare``.

        ``None`` where nobody has worked it out. Where it isn't, a batch has ``chance`` (B,) int64, that of each sample
        in billionths: whole numbers, whose sums are exact.
        """
        del split
        return None

    def oracle(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
        """(B, T) int64, right wherever there is a target, worked out from ``ids`` and ``valid`` without a model.

        ``None`` where nobody knows the answers. It is right as well where ``ids`` are those of ``blanked``.
        """
        del batch
        return None

    def state(self) -> Mapping[str, Any]:
        """What it takes to show a model other inputs as it has seen these, as plain JSON values; after ``prepare``.

        Kept in the run folder, for example mean and deviation of images. Empty where nothing is measured.
        """
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what a model was trained with, the ``state`` of its data; before ``prepare``."""
        del state

    def read_inputs(self, paths: Sequence[Path]) -> torch.Tensor:
        """Files from outside as the model gets inputs, a row each; after ``prepare`` or ``restore``.

        Raises:
            UserError: a file that can't be read, or data whose samples aren't files.
        """
        del paths
        raise UserError(f"data {type(self).__name__} reads no single files", where="data")

    def read_texts(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Texts from outside as the model gets inputs, a row each; needs only a tokenizer that has learned.

        Returns:
            what ``batch`` gives, without labels.

        Raises:
            UserError: a text that the tokenizer can't express, or data whose samples aren't single texts.
        """
        del texts
        raise UserError(f"data {type(self).__name__} reads no single texts", where="data")
