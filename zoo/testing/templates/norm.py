"""Each vector is divided by its root mean square, then scaled; change what ``forward`` says.

    y = gain * x / sqrt(mean(x^2) + eps)

Zhang and Sennrich 2019, arXiv:1910.07467.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from zoo.contracts.norm import Norm

__all__ = ["Mine"]


class Mine(Norm):
    """A norm with a parameter of its own, which ``initial`` fills."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Norm.Config):
        """Knobs; each has a docstring, which the tables show."""

        eps: float = 1e-6
        """Added to the mean square."""

    def __init__(self, config: Any, *, dim: int) -> None:
        super().__init__(config, dim=dim)
        self.gain = nn.Parameter(torch.empty(dim))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """All ones."""
        parameter.fill_(1.0)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(..., D) from (..., D), computed in float32 or wider."""
        wide = x_BTD.to(torch.promote_types(x_BTD.dtype, torch.float32))
        scale = (wide.square().mean(-1, keepdim=True) + self.config.eps).rsqrt()
        return (wide * scale * self.gain).to(x_BTD.dtype)
