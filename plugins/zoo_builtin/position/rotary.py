"""Queries and keys are rotated by their positions, so that scores depend on distances only (RoPE).

    (R(m theta) k_m)^T (R(n theta) q_n) = k_m^T R((n - m) theta) q_n          (article, equation 12.7)

Acts on queries and keys; no parameters. The elements are paired, pair i of H/2 turns by p theta^(-2i/H).
Su et al. 2021, "RoFormer", section 3.2.2, arXiv:2104.09864, pairs neighbours (``pairs: interleaved``); GPT-NeoX and
the Llama weights in circulation pair element i with element i + H/2 (``pairs: half``).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import torch
from torch import Tensor

from zoo.contracts.position import Position

__all__ = ["Rotary"]


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
        pairs: Literal["half", "interleaved"] = "half"
        """Which elements turn together: i with i + H/2, or 2i with 2i + 1."""

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

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        """(1|B, 1, T, rotated/2) cosines and sines, in float64: half precision would lose whole turns."""
        del keys_BSA  # keys are rotated when they are new, and cached so
        pair = torch.arange(0, self.rotated, 2, dtype=torch.float64, device=at_BTA.device)
        phase = at_BTA[:, None, :, :1].double() * self.config.theta ** (-pair / self.rotated)
        return phase.cos(), phase.sin()

    def rotate(self, x_BNTH: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        """(B, N, T, H) with its first ``rotated`` elements turned, computed in float32 or wider."""
        wide = torch.promote_types(x_BNTH.dtype, torch.float32)
        cos, sin = (table.to(wide) for table in prepared)
        turned, rest = x_BNTH[..., : self.rotated].to(wide), x_BNTH[..., self.rotated :]
        half = self.config.pairs == "half"
        a, b = turned.chunk(2, -1) if half else (turned[..., 0::2], turned[..., 1::2])
        parts = (a * cos - b * sin, b * cos + a * sin)
        turned = torch.cat(parts, -1) if half else torch.stack(parts, -1).flatten(-2)
        return torch.cat([turned.to(x_BNTH.dtype), rest], -1)
