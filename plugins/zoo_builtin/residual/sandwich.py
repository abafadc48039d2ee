"""Normalize at the start and at the end of each branch; the stream itself is never touched.

    X <- X + Norm'(branch(Norm(X)))

Ding et al. 2021, "CogView", section 2.4 (Sandwich-LN), arXiv:2105.13290; Gemma Team 2024, "Gemma 2", section 2,
arXiv:2408.00118, with RMS norms. What a branch adds can't grow with its weights. Twice the norms of ``pre``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from torch import Tensor, nn

from zoo.contracts.residual import Branch, Residual

__all__ = ["Sandwich"]


@final
class Sandwich(Residual):
    """The arrangement of CogView and Gemma 2; the stack ends with a norm of its own.

    ``norms`` are the first branch's two, the second branch's two, ... Dropout, LayerScale and stochastic depth act
    behind the second norm, which would undo them.
    """

    final_norm = True

    def __init__(self, config: Any, *, norm: Callable[..., nn.Module], branches: int, **parent: Any) -> None:
        super().__init__(config, norm=norm, branches=branches, norms=2 * branches, **parent)

    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        """(B, T, D) the stream after the block."""
        norms = list(self.norms)
        for index, (before, after, branch) in enumerate(zip(norms[::2], norms[1::2], branches, strict=True)):
            x_BTD = x_BTD + self.contribution(index, after(branch(before(x_BTD))))
        return x_BTD
