"""Normalize at the start of each branch; the stream itself is never touched.

    X <- X + branch(Norm(X))                                                  (article, equation 12.9)

Xiong et al. 2020, "On layer normalization in the transformer architecture", arXiv:2002.04745.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from torch import Tensor

from zoo.contracts.residual import Branch, Residual

__all__ = ["Pre"]


@final
class Pre(Residual):
    """The pre-norm arrangement of GPT-2; the stack ends with a norm of its own."""

    final_norm = True

    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        """(B, T, D) the stream after the block."""
        for index, (norm, branch) in enumerate(zip(self.norms, branches, strict=True)):
            x_BTD = x_BTD + self.contribution(index, branch(norm(x_BTD)))
        return x_BTD
