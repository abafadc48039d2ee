"""Contract of an embedding: raw inputs, tokens or images, become the stream of vectors that the blocks work on.

Dimension legend: B batch, T tokens of the stream, D width, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zoo.config import Part
from zoo.contracts.data import Description


class Embedding(Part, nn.Module, ABC):
    """Makes the stream, and says where its tokens stand if they don't simply follow each other.

    Args:
        config: the embedding's knobs.
        dim: width D.
        sizes: vocabulary, image size and channels of the data.

    Attributes:
        extra: tokens that it puts in front and that stand for no input: class tokens, registers.
        length: tokens in the stream where that is fixed, else ``None``.
        places: positions in a row that they take up: ``length`` without those that stand nowhere.
        grid: rows and columns of patches, else ``None``.
        patch_size: height and width of a patch in pixels, else ``None``.
    """

    offers: ClassVar[frozenset[str]]
    """Words for tasks and positions: ``tokens`` or ``patches``, ``grid``."""

    takes: ClassVar[frozenset[str]]
    """Sizes of the data (fields of ``Description``) that it must know."""

    extra: int = 0
    length: int | None = None
    places: int | None = None
    grid: tuple[int, int] | None = None
    patch_size: tuple[int, int] | None = None

    def __init__(self, config: Any, *, dim: int, sizes: Description) -> None:
        super().__init__()
        self.config, self.dim, self.sizes = config, dim, sizes

    @classmethod
    def smallest(cls, config: Any) -> Description:
        """Sizes of the smallest data that it can be made for, to try a recipe before its data is read."""
        del config
        return Description(vocab_size=1, max_length=1, classes=2)

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T, D) without positions."""

    @property
    def table(self) -> Tensor | None:
        """(V, D) vector of each token, which a head may be tied to; ``None`` where there is none."""
        return None

    def positions(self, inputs: Tensor, axes: int) -> Tensor | None:
        """(1, T, axes) int64 positions, -1 on any axis for a token that stands nowhere.

        ``None`` means that the tokens follow each other, as mask and cache say.

        Raises:
            ValueError: the inputs have no such axes.
        """
        del inputs
        if axes == 1:
            return None
        raise ValueError(f"{type(self).__name__} has tokens in a row; a position scheme with {axes} axes needs a grid")

    def refuse_other_places(self, inputs: Tensor) -> None:
        """Refuse inputs whose tokens stand elsewhere than those that a table over places in a row was learned for.

        Raises:
            ValueError: images of another size.
        """
        del inputs

    @abstractmethod
    def example(self, batch: int, length: int, generator: torch.Generator | None = None) -> Tensor:
        """Random inputs on the CPU, ``length`` tokens of the stream where the length is free."""
