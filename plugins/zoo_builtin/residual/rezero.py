"""Each branch is multiplied by a number that begins at 0: the network begins as the identity, and needs no norm.

    X <- X + alpha * branch(X)                                                alpha begins at 0

Bachlechner et al. 2020, "ReZero is all you need", equation 1, arXiv:2003.04887. As in their code all branches of a
block share one alpha, and there are no norms: one parameter for each block. A vector for each branch, next to norms,
is the knob ``layer_scale`` of the other arrangements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.residual import Branch, Residual

__all__ = ["ReZero"]


@final
class ReZero(Residual):
    """The arrangement without norms; neither does one end the stack."""

    final_norm = False

    def __init__(self, config: Any, *, norm: Callable[..., nn.Module], branches: int, **parent: Any) -> None:
        super().__init__(config, norm=norm, branches=branches, norms=0, **parent)
        self.alpha = nn.Parameter(torch.zeros(1))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """The identity."""
        parameter.zero_()

    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        """(B, T, D) the stream after the block.

        Raises:
            ValueError: another number of branches than it was made for.
        """
        for index, branch in zip(range(self.branches), branches, strict=True):
            x_BTD = x_BTD + self.alpha * self.contribution(index, branch(x_BTD))
        return x_BTD
