"""Queries and keys are rotated by row and column: half of the pairs turn by the one, half by the other (axial RoPE).

    pair i of H/4 turns by coordinate * theta^(-i / (H/4))

Acts on queries and keys; no parameters. Scores depend on the offset in rows and columns only.
Heo et al. 2024, "Rotary position embedding for vision transformer", section 3.1, arXiv:2403.13298 (theta 100, the
column first); EVA-02 (Fang et al. 2023, arXiv:2303.11331) has theta 10000, the row first, and a reference grid.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import torch
from torch import Tensor

from zoo.contracts.position import Position
from zoo.nn.rotation import Pairs, turned

__all__ = ["RotaryGrid"]


@final
class RotaryGrid(Position):
    """Rotary positions (row, column) on a grid."""

    axes = 2
    relative = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the rotary scheme on a grid."""

        theta: float = 100.0
        """Base of the wavelengths (also called temperature); the longest is 2 pi theta^(1 - 4/H) patches."""
        first: Literal["column", "row"] = "column"
        """The coordinate by which the first half of the pairs turns."""
        pairs: Pairs = "interleaved"
        """Which elements turn together: 2i with 2i + 1, or i with i + H/2."""
        reference: tuple[int, int] | None = None
        """Rows and columns of the grid that coordinates are stretched to, so that a model trained on it sees larger
        images at its own scale; null means that they are counted as they are."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.size % 4:
            raise ValueError(f"rotary_2d needs a head dim divisible by 4, got {self.size}")
        if config.reference is not None and self.grid is None:
            raise ValueError("rotary_2d can't stretch to a reference grid without knowing the grid of the image")

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        """(1|B, 1, T, H/2) cosines and sines, in float64: half precision would lose whole turns."""
        del keys_BSA  # keys are rotated when they are new
        at_B1TA = at_BTA[:, None].double()
        if self.config.reference is not None and self.grid is not None:
            # one number at a time, so that no tensor goes to the device
            stretched = zip(at_B1TA.unbind(-1), self.config.reference, self.grid, strict=True)
            at_B1TA = torch.stack([at_B1T * reference / count for at_B1T, reference, count in stretched], -1)
        if self.config.first == "column":
            at_B1TA = at_B1TA.flip(-1)
        pair = torch.arange(self.size // 4, dtype=torch.float64, device=at_BTA.device)
        phase = (at_B1TA[..., None] * self.config.theta ** (-pair / (self.size // 4))).flatten(-2)
        return phase.cos(), phase.sin()

    def rotate(self, x_BNTH: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        """(B, N, T, H) turned, computed in float32 or wider."""
        return turned(x_BNTH, *prepared, self.config.pairs)
