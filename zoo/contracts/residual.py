"""Contract of a residual arrangement: how a block's branches, their norms and the stream are put together.

Dimension legend: B batch, T tokens, D width.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zoo.config import Part

Branch = Callable[[Tensor], Tensor]


class Residual(Part, nn.Module, ABC):
    """Wires the branches of one block (attention, perhaps cross-attention, feed-forward) into the stream.

    What a branch gives goes through ``contribution`` on its way into the stream.

    Args:
        config: the arrangement's knobs.
        dim: width D.
        norm: factory of a norm, called as ``norm(dim=dim)``.
        branches: number of branches in the block.
        layer: index of the layer, from 0.
        layers: number of layers in the stack.
        dropout: probability of dropping an element of a branch's output.
        norms: number of norms, when it isn't one for each branch.
    """

    final_norm: ClassVar[bool]
    """Whether the stack ends with a norm of its own, because the stream that leaves it is not normalized."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Part.Config):
        """Knobs of every arrangement."""

        layer_scale: float | None = None
        """Initial value of a learned vector that multiplies each branch's output (LayerScale); null means none."""
        drop_path: float = 0.0
        """Probability of dropping a branch in training (stochastic depth): 0 in the first layer, this in the last."""

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
        norms: int | None = None,
    ) -> None:
        super().__init__()
        if not 0 <= config.drop_path < 1:
            raise ValueError(f"drop_path must be at least 0 and below 1, got {config.drop_path}")
        self.config, self.dim, self.branches, self.layer, self.layers = config, dim, branches, layer, layers
        self.norms = nn.ModuleList(norm(dim=dim) for _ in range(branches if norms is None else norms))
        self.dropout = nn.Dropout(dropout)
        scaled = config.layer_scale is not None
        self.scales = nn.ModuleList(LayerScale(dim, config.layer_scale) for _ in range(branches)) if scaled else None
        self.drop_path = config.drop_path * layer / max(1, layers - 1)

    @abstractmethod
    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        """(B, T, D) the stream after the block."""

    def initial_factor(self, name: str) -> float | None:
        """Factor on the initial deviation of a weight of the block's branches; ``None`` leaves the architecture's.

        Args:
            name: its path in the block: ``attention.value.weight``, ``feed_forward.up.weight``, ...
        """
        del name
        return None

    def contribution(self, index: int, out_BTD: Tensor) -> Tensor:
        """(B, T, D) what branch ``index`` adds to the stream: its output after dropout, LayerScale, stochastic depth.

        A row of the batch loses the whole branch with probability p; those that keep it have it times 1 / (1 - p).
        Touvron et al. 2021, "Going deeper with image transformers", equation 4, arXiv:2103.17239; Huang et al.
        2016, "Deep networks with stochastic depth", section 3 (linear decay), arXiv:1603.09382.
        """
        out_BTD = self.dropout(out_BTD)
        if self.scales is not None:
            out_BTD = self.scales[index](out_BTD)
        if not self.training or not self.drop_path:
            return out_BTD
        kept_B11 = torch.rand(out_BTD.shape[0], 1, 1, device=out_BTD.device) >= self.drop_path
        return out_BTD * kept_B11.to(out_BTD.dtype) / (1 - self.drop_path)


class LayerScale(nn.Module):
    """A learned factor for each element of a vector.

    Args:
        dim: width D.
        value: what all of them begin with.
    """

    def __init__(self, dim: int, value: float) -> None:
        super().__init__()
        self.value = value
        self.weight = nn.Parameter(torch.full((dim,), value))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """The same value for all."""
        del name, generator
        parameter.fill_(self.value)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """(..., D) from (..., D)."""
        return x_BTD * self.weight
