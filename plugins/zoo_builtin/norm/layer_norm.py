"""Each vector gets mean 0 and variance 1, then a learned scale and shift.

    y = gamma * (x - mean(x)) / sqrt(var(x) + eps) + beta

Ba, Kiros and Hinton 2016, arXiv:1607.06450 (article 12, section 7). 2 D parameters.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

from torch import Tensor, nn

from zoo.contracts.norm import Norm

__all__ = ["LayerNorm"]


@final
class LayerNorm(Norm):
    """Layer normalization over the width."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Norm.Config):
        """Knobs of layer normalization."""

        eps: float = 1e-5
        """Added to the variance: GPT-2 has 1e-5, BERT 1e-12, ViT 1e-6."""
        bias: bool = True
        """Whether there is a shift."""

    def __init__(self, config: Any, *, dim: int) -> None:
        super().__init__(config, dim=dim)
        self.norm = nn.LayerNorm(dim, eps=config.eps, bias=config.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(..., D) from (..., D)."""
        return self.norm(x_BTD)
