"""Pre-norm with a learned weight of the stream beside each branch; change what ``forward`` says.

    X <- weight * X + branch(Norm(X))

Liu et al. 2020, section 4 (there with post-norm), arXiv:2004.08249.
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
        self.carry = nn.Parameter(torch.empty(branches, self.dim))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """At first the stream passes as it is."""
        parameter.fill_(1.0)

    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        """(B, T, D) the stream after the block."""
        for index, (norm, branch) in enumerate(zip(self.norms, branches, strict=True)):
            # contribution: dropout, and what the knobs layer_scale and drop_path ask for
            x_BTD = self.carry[index] * x_BTD + self.contribution(index, branch(norm(x_BTD)))
        return x_BTD
