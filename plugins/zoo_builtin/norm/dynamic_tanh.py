"""Each element is squashed by a tanh, then scaled and shifted; nothing is measured.

    y = gamma * tanh(alpha x) + beta

Zhu, Chen, He, LeCun and Liu 2025, "Transformers without normalization", section 4, arXiv:2503.10622. 2 D + 1
parameters; alpha is one number.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.norm import Norm

__all__ = ["DynamicTanh"]


@final
class DynamicTanh(Norm):
    """DyT, which stands where a norm would."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Norm.Config):
        """Knobs of DyT."""

        initial_alpha: float = 0.5
        """What alpha begins with; wider language models want less."""

    def __init__(self, config: Any, *, dim: int) -> None:
        super().__init__(config, dim=dim)
        self.alpha = nn.Parameter(torch.full((1,), config.initial_alpha))
        self.gamma, self.beta = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Alpha as configured, gamma 1, beta 0."""
        parameter.fill_({"alpha": self.config.initial_alpha, "gamma": 1.0, "beta": 0.0}[name])

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(..., D) from (..., D), computed in float32 or wider."""
        wide = x_BTD.to(torch.promote_types(x_BTD.dtype, torch.float32))
        return (self.gamma * torch.tanh(self.alpha * wide) + self.beta).to(x_BTD.dtype)
