"""Normalize after each addition, as the original transformer did.

    X <- Norm(X + branch(X))

Vaswani et al. 2017, section 3.1, arXiv:1706.03762; also GPT-1 and BERT. Deep stacks need a warm-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from torch import Tensor

from zoo.contracts.residual import Branch, Residual

__all__ = ["Post"]


@final
class Post(Residual):
    """The post-norm arrangement; what leaves the stack is normalized already."""

    final_norm = False

    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        """(B, T, D) the stream after the block."""
        for index, (norm, branch) in enumerate(zip(self.norms, branches, strict=True)):
            x_BTD = norm(x_BTD + self.contribution(index, branch(x_BTD)))
        return x_BTD
