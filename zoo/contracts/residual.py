"""Contract of a residual arrangement: how a block's branches, their norms and the stream are put together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.config import Part

Branch = Callable[[Tensor], Tensor]


class Residual(Part, nn.Module, ABC):
    """Wires the branches of one block (attention, perhaps cross-attention, feed-forward) into the stream.

    Args:
        config: the arrangement's knobs.
        dim: width D.
        norm: factory of a norm, called as ``norm(dim=dim)``.
        branches: number of branches in the block.
        layer: index of the layer, from 0.
        layers: number of layers in the stack.
        dropout: probability of dropping an element of a branch's output.
    """

    final_norm: ClassVar[bool]
    """Whether the stack ends with a norm of its own, because the stream that leaves it is not normalized."""

    def __init__(
        self,
        config: Any,
        *,
        dim: int,
        norm: Callable[..., nn.Module],
        branches: int,
        layer: int = 0,
        layers: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.config, self.dim, self.layer, self.layers = config, dim, layer, layers
        self.norms = nn.ModuleList(norm(dim=dim) for _ in range(branches))
        self.dropout = nn.Dropout(dropout)

    @abstractmethod
    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        """(B, T, D) the stream after the block."""
