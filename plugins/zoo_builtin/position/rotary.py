"""Queries and keys are rotated by their positions, so that scores depend on distances only (RoPE).

    (R(m theta) k_m)^T (R(n theta) q_n) = k_m^T R((n - m) theta) q_n          (article, equation 12.7)

Acts on queries and keys; no parameters. The elements are paired, pair i of H/2 turns by p theta^(-2i/H).
Su et al. 2021, "RoFormer", section 3.2.2, arXiv:2104.09864, pairs neighbours (``pairs: interleaved``); GPT-NeoX and
the Llama weights in circulation pair element i with element i + H/2 (``pairs: half``).
``scaling`` stretches long wavelengths, so that a model goes on past the length that it was trained with, as Llama 3.1
does: Grattafiori et al. 2024, "The Llama 3 herd of models", section 3.4.2, arXiv:2407.21783, and its published code.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, final

import torch
from torch import Tensor

from zoo.contracts.position import Position
from zoo.nn.rotation import Pairs, turned

__all__ = ["Rotary"]


@dataclasses.dataclass(kw_only=True)
class Scaling:
    """How wavelengths are stretched: not the short ones, the long ones by ``factor``, those between by a part of it.

    The bounds are at ``original_length`` / ``high_frequency_factor`` and / ``low_frequency_factor`` positions.
    """

    factor: float = 8.0
    """What long wavelengths are multiplied by (Llama 3.1: 8, Llama 3.2: 32)."""
    low_frequency_factor: float = 1.0
    """A wavelength is long where it fits fewer times than this into the original length."""
    high_frequency_factor: float = 4.0
    """A wavelength is short where it fits more often than this."""
    original_length: int = 8192
    """Positions that the model was trained with before."""


@final
class Rotary(Position):
    """Rotary position embedding, whole or partial, in both layouts of pairs."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the rotary scheme."""

        theta: float = 10000.0
        """Base of the wavelengths."""
        fraction: float = 1.0
        """Part of each head, from its first element, that is rotated; the rest is left alone (GPT-NeoX: 0.25)."""
        pairs: Pairs = "half"
        """Which elements turn together: i with i + H/2, or 2i with 2i + 1."""
        scaling: Scaling | None = None
        """Llama 3.1's stretching: factor 8.0, low_frequency_factor 1.0, high_frequency_factor 4.0,
        original_length 8192; null means none."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.rotated = round(self.size * config.fraction)
        if not 0 < config.fraction <= 1:
            raise ValueError(f"rotary fraction must be above 0 and at most 1, got {config.fraction}")
        if self.rotated % 2 or not self.rotated:
            raise ValueError(
                f"rotary needs an even head dim, got {self.rotated} = {self.dim}/{self.dim // self.size}"
                + (f" x fraction {config.fraction}" if config.fraction != 1 else "")
            )

        if (scaling := config.scaling) is not None and not (
            scaling.factor >= 1 and 0 < scaling.low_frequency_factor < scaling.high_frequency_factor
        ):
            raise ValueError(
                "rotary scaling needs a factor of at least 1 and a low_frequency_factor between 0 and "
                f"high_frequency_factor, got {scaling.factor}, {scaling.low_frequency_factor} and "
                f"{scaling.high_frequency_factor}"
            )

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        """(1|B, 1, T, rotated/2) cosines and sines, in float64: half precision would lose whole turns."""
        del keys_BSA  # keys are rotated when they are new, and cached so
        phase = at_BTA[:, None, :, :1].double() * self.frequencies(at_BTA.device)
        return phase.cos(), phase.sin()

    def frequencies(self, device: torch.device) -> Tensor:
        """(rotated/2,) float64: by how much each pair turns from a position to the next, in radians."""
        pair = torch.arange(0, self.rotated, 2, dtype=torch.float64, device=device)
        frequency = self.config.theta ** (-pair / self.rotated)
        scaling = self.config.scaling
        if scaling is None:
            return frequency
        turns = scaling.original_length * frequency / (2 * math.pi)  # within the original length
        low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
        unstretched = ((turns - low) / (high - low)).clamp(0, 1)
        return frequency * (unstretched + (1 - unstretched) / scaling.factor)

    def rotate(self, x_BNTH: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        """(B, N, T, H) with its first ``rotated`` elements turned, computed in float32 or wider."""
        return turned(x_BNTH, *prepared, self.config.pairs)
