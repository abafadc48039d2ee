"""Fixed sines and cosines of the position, added to the embeddings.

    PE[p, 2i] = sin(p / 10000^(2i/D)),  PE[p, 2i+1] = cos(p / 10000^(2i/D))   (article, equation 12.6)

Acts on embeddings; any position, no parameters. Vaswani et al. 2017, section 3.5, arXiv:1706.03762, which also
multiplies the token embeddings by sqrt(D) before the sum; that is the architecture's to do.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import torch
from torch import Tensor

from zoo.contracts.position import Position

__all__ = ["Sinusoidal"]


@final
class Sinusoidal(Position):
    """Each pair of elements turns at its own frequency, like the hands of a clock."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the sinusoidal scheme."""

        theta: float = 10000.0
        """Base of the wavelengths, which go from 2 pi to 2 pi theta positions."""
        layout: Literal["interleaved", "halves"] = "interleaved"
        """Sines and cosines in turn, or all sines and then all cosines, as Marian has it."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.dim % 2:
            raise ValueError(f"sinusoidal positions need an even width, got {self.dim}")

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        """(B, T, D) embeddings plus equation 12.6, its phases in float32 or wider whatever the embeddings are."""
        wide = torch.promote_types(x_BTD.dtype, torch.float32)
        pair = torch.arange(self.dim // 2, dtype=wide, device=x_BTD.device)
        phase = at_BTA[..., :1].to(wide) / self.config.theta ** (2 * pair / self.dim)
        parts = [phase.sin(), phase.cos()]
        halves = self.config.layout == "halves"
        table_BTD = torch.cat(parts, -1) if halves else torch.stack(parts, -1).flatten(-2)
        return x_BTD + table_BTD.to(x_BTD.dtype)
