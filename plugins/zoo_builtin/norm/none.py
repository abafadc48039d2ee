"""No normalization: vectors pass as they are.

    y = x

For residual arrangements that do without, as ``rezero`` does, and to see what a norm is worth. No parameters.
"""

from __future__ import annotations

from typing import final

from torch import Tensor

from zoo.contracts.norm import Norm

__all__ = ["NoNorm"]


@final
class NoNorm(Norm):
    """The neutral norm."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        """The same tensor."""
        return x_BTD
