"""Contract of a feed-forward network: the same function of every position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from zoo.config import Part
from zoo.contracts.values.notes import Notes


class FeedForward(Part, nn.Module, ABC):
    """A network applied to each position by itself (equation 12.9, second line).

    Args:
        config: the network's knobs.
        dim: width D.
        layer: index of the layer, from 0.
        layers: number of layers in the stack.
    """

    def __init__(self, config: Any, *, dim: int, layer: int = 0, layers: int = 1) -> None:
        super().__init__()
        self.config, self.dim, self.layer, self.layers = config, dim, layer, layers

    @abstractmethod
    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Notes | None = None) -> Tensor:
        """(B, T, D) from (B, T, D); ``valid_BT`` (bool, False is padding) is for those that count tokens."""

    def idle_parameters(self) -> int:
        """Parameters that a token passes by, those of the experts that it isn't sent to."""
        return 0
