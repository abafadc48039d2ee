"""Pre-norm with a learned scale on each branch (LayerScale); change what ``forward`` says.

    X <- X + gain * branch(Norm(X))

Touvron et al. 2021, arXiv:2103.17239.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zoo.contracts.residual import Branch, Residual

__all__ = ["Mine"]


class Mine(Residual):
    """The stream itself is never normalized, so that the stack ends with a norm."""

    final_norm = True

    def __init__(self, config: Any, *, branches: int, **parent: Any) -> None:
        super().__init__(config, branches=branches, **parent)
        self.gain = nn.Parameter(torch.empty(branches, self.dim))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Small, so that a deep stack begins near the identity."""
        parameter.fill_(0.1)

    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        """(B, T, D) the stream after the block."""
        for gain_D, norm, branch in zip(self.gain, self.norms, branches, strict=True):
            x_BTD = x_BTD + self.dropout(gain_D * branch(norm(x_BTD)))
        return x_BTD
