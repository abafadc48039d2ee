"""Each vector gets one learned length, the same for all.

    y = g * x / |x|                                                           g begins at sqrt(D)

Nguyen and Salazar 2019, "Transformers without tears: improving the normalization of self-attention", section 2.2,
arXiv:1910.05895. One parameter: at the start it is RMS norm, which has a scale for each element.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.norm import Norm

__all__ = ["ScaleNorm"]


@final
class ScaleNorm(Norm):
    """Normalization to a learned length."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Norm.Config):
        """Knobs of the norm."""

        eps: float = 1e-5
        """Least length that a vector is divided by."""

    def __init__(self, config: Any, *, dim: int) -> None:
        super().__init__(config, dim=dim)
        self.length = nn.Parameter(torch.full((1,), dim**0.5))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """The length of a vector whose elements have variance 1."""
        parameter.fill_(self.dim**0.5)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(..., D) from (..., D), computed in float32 or wider."""
        wide = x_BTD.to(torch.promote_types(x_BTD.dtype, torch.float32))
        return (self.length * F.normalize(wide, dim=-1, eps=self.config.eps)).to(x_BTD.dtype)
