"""Rotary positions on a grid: one half of each head turns by the row, the other by the column.

Heo et al. 2024, "Rotary position embedding for vision transformer" (axial), arXiv:2403.13298.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zoo.contracts.position import Position

__all__ = ["AxialRotary"]


class AxialRotary(Position):
    """Positions are (row, column); class tokens and registers stand at -1, nowhere."""

    axes = 2

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.size % 4:
            raise ValueError(f"axial rotary needs a head dim divisible by 4, got {self.size}")

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        """(1|B, 1, T, H/2) cosines and sines: pairs of the row, then pairs of the column."""
        pair = torch.arange(self.size // 4, dtype=torch.float64, device=at_BTA.device)
        phase = at_BTA[:, None].double()[..., None] * 100.0 ** (-pair / (self.size // 4))
        return phase.flatten(-2).cos(), phase.flatten(-2).sin()

    def rotate(self, x_BNTH: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        """Neighbouring elements are a pair."""
        wide = torch.promote_types(x_BNTH.dtype, torch.float32)
        cos, sin = (table.to(wide) for table in prepared)
        a, b = x_BNTH.to(wide).unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2).to(x_BNTH.dtype)
