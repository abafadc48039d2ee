"""Each vector is divided by its root mean square, then scaled; no mean is taken off.

    y = gamma * x / sqrt(mean(x^2) + eps)

Zhang and Sennrich 2019, arXiv:1910.07467. D parameters.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

from torch import Tensor, nn

from zoo.contracts.norm import Norm

__all__ = ["RMSNorm"]


@final
class RMSNorm(Norm):
    """Root mean square normalization over the width."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Norm.Config):
        """Knobs of RMS normalization."""

        eps: float = 1e-6
        """Added to the mean square: T5 has 1e-6, Llama 2 1e-5."""

    def __init__(self, config: Any, *, dim: int) -> None:
        super().__init__(config, dim=dim)
        self.norm = nn.RMSNorm(dim, eps=config.eps)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(..., D) from (..., D)."""
        return self.norm(x_BTD)
