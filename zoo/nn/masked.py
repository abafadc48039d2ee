"""What a hidden state passes before it scores the token that was hidden there.

Dimension legend: D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from zoo.nn.activations import activate

Activation = Literal["gelu", "gelu_tanh", "relu"]
"""Exact GELU, its tanh approximation, or ReLU."""


class Transform(nn.Module):
    """norm(f(W h + c)): BERT's and RoBERTa's layer between the last block and the token table.

    Args:
        dim: width D.
        norm: factory of a norm, called as ``norm(dim=dim)``.
        activation: f.
    """

    def __init__(self, dim: int, *, norm: Callable[..., nn.Module], activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        self.dense, self.norm = nn.Linear(dim, dim), norm(dim=dim)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., D) from (..., D)."""
        return self.norm(activate(self.activation, self.dense(hidden)))
