"""Rotation with a decay: queries grow and keys shrink with position, so that scores fall with distance (xPos).

    q_t -> zeta^(p_t / b) R(p_t theta) q_t,  k_s -> zeta^(-p_s / b) R(p_s theta) k_s
    zeta_i = (2 i / H + gamma) / (1 + gamma) for pair i of H/2, b = 512

Acts on queries and keys; no parameters. Scores depend on p_t - p_s, and the decay is slower for long wavelengths.
Made for causal models: in an encoder, keys ahead of a query grow instead. zeta^(-p/b) is within the range of float32
and bfloat16 up to position 36,000, of float16 up to 4,500.
Sun et al. 2022, "A length-extrapolatable transformer", section 2, algorithm 1, arXiv:2212.10554.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from zoo.contracts.position import Position
from zoo.nn.rotation import Pairs, turned

__all__ = ["XPos"]


@final
class XPos(Position):
    """Rotary positions with exponential decay."""

    relative = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of rotation and decay."""

        theta: float = 10000.0
        """Base of the wavelengths."""
        gamma: float = 0.4
        """How little the shortest wavelength decays: zeta_0 = gamma / (1 + gamma)."""
        base: float = 512.0
        """Positions over which a pair's products fall by the factor zeta_i (b)."""
        pairs: Pairs = "interleaved"
        """Which elements turn together: 2i with 2i + 1, or i with i + H/2."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.size % 2:
            raise ValueError(f"xpos needs an even head dim, got {self.size}")
        if config.gamma <= 0 or config.base <= 0:
            raise ValueError(f"xpos needs gamma and base above 0, got {config.gamma} and {config.base}")

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(1|B, 1, T, H/2) cosines, sines and growth of queries, in float64: half precision would lose whole turns."""
        del keys_BSA  # keys are rotated when they are new, and cached so
        fraction = torch.arange(0, self.size, 2, dtype=torch.float64, device=at_BTA.device) / self.size
        at_B1T1 = at_BTA[:, None].double()
        zeta = (fraction + self.config.gamma) / (1 + self.config.gamma)
        phase = at_B1T1 * self.config.theta**-fraction
        return phase.cos(), phase.sin(), zeta ** (at_B1T1 / self.config.base)

    def rotate(self, x_BNTH: Tensor, prepared: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """(B, N, T, H) queries turned and scaled, computed in float32 or wider."""
        cos, sin, growth = prepared
        return turned(x_BNTH, cos * growth, sin * growth, self.config.pairs)

    def rotate_keys(self, k_BNTH: Tensor, prepared: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """(B, N, T, H) keys turned alike and scaled by the inverse."""
        cos, sin, growth = prepared
        return turned(k_BNTH, cos / growth, sin / growth, self.config.pairs)
