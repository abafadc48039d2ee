"""Contract of a normalization."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from zoo.config import Part


class Norm(Part, nn.Module, ABC):
    """Normalizes each position's vector by itself.

    Args:
        config: the norm's knobs.
        dim: width D.
    """

    def __init__(self, config: Any, *, dim: int) -> None:
        super().__init__()
        self.config, self.dim = config, dim

    @abstractmethod
    def forward(self, x_BTD: Tensor) -> Tensor:
        """(..., D) from (..., D), same dtype."""
