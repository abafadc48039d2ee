"""Queries and keys are rotated by row and column at once, at directions and wavelengths that each head learns.

    pair i of H/2 turns by column * f[x, n, i] + row * f[y, n, i]

Acts on queries and keys. Scores depend on the offset in rows and columns only. Frequencies begin as two crossed
waves at theta^(-4 i / H), turned by a random angle in each head. The paper learns them in each layer
(``position`` as a list); one scheme for all layers is cheaper.
Heo et al. 2024, "Rotary position embedding for vision transformer", section 3.2 (RoPE-Mixed), arXiv:2403.13298.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.position import Position
from zoo.nn.rotation import Pairs, turned

__all__ = ["RotaryMixed"]


@final
class RotaryMixed(Position):
    """Rotation in learned directions."""

    axes = 2
    by_head = True
    relative = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the rotation."""

        theta: float = 10.0
        """Base of the wavelengths at the start; the longest is 2 pi theta^(1 - 4/H) patches."""
        pairs: Pairs = "interleaved"
        """Which elements turn together: 2i with 2i + 1, or i with i + H/2."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.size % 4:
            raise ValueError(f"rotary_mixed needs a head dim divisible by 4, got {self.size}")
        # All in one axis, so that no weight decay pulls them to 0: x then y, heads, pairs.
        self.frequency = nn.Parameter(torch.empty(self.heads * self.size))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Two waves that cross at a right angle, in a random direction for each head."""
        del name
        angle_N1 = 2 * math.pi * torch.rand(self.heads, 1, generator=generator)
        wave = self.config.theta ** (-torch.arange(0, self.size, 4) / self.size)
        x, y = wave * angle_N1.cos(), wave * angle_N1.sin()
        parameter.copy_(torch.stack([torch.cat([x, -y], -1), torch.cat([y, x], -1)]).flatten())

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        """(1|B, N, T, H/2) cosines and sines, in float64: half precision would lose whole turns."""
        del keys_BSA  # keys are rotated when they are new, and cached so
        x_N1P, y_N1P = self.frequency.double().view(2, self.heads, 1, self.size // 2)
        row_B1T1, column_B1T1 = at_BTA[:, None, ..., None].double().unbind(-2)
        phase = column_B1T1 * x_N1P + row_B1T1 * y_N1P
        return phase.cos(), phase.sin()

    def rotate(self, x_BNTH: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        """(B, N, T, H) turned, computed in float32 or wider."""
        return turned(x_BNTH, *prepared, self.config.pairs)
