"""A small network turns the offset between two patches into a bias for each head; its size is that of no grid.

    bias[n, t, s] = (W_2 ReLU(W_1 d + b_1) + b_2)[n],  d = sign(o) log(1 + |o|) for the offset o in rows and columns

Acts on scores. Computed once for each of the (2 rows - 1)(2 columns - 1) offsets. Liu et al. 2022, "Swin transformer
V2", section 3.3 (log-spaced continuous position bias), arXiv:2111.09883; here without its sigmoid and its scaling
of d, as in timm's ``vit_relpos`` models, which have such a network in each layer (``position`` as a list).
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call, no_autocast
from zoo.nn.offsets import all_offsets, offset_index

__all__ = ["ContinuousGrid"]


@final
class ContinuousGrid(Position):
    """Bias by a network of one hidden layer."""

    axes = 2
    relative = True
    bounded = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the network."""

        hidden: int = 128
        """Width of the hidden layer (Swin V2: 512)."""
        dropout: float = 0.0
        """Probability of dropping a hidden element in training (timm: 0.125)."""

    def __init__(self, config: Any, *, grid: tuple[int, int] | None = None, **parent: Any) -> None:
        super().__init__(config, grid=grid, **parent)
        if grid is None:
            raise ValueError("continuous_2d needs a grid, the rows and columns of an image's patches")
        self.extent = grid
        self.up, self.down = nn.Linear(2, config.hidden), nn.Linear(config.hidden, self.heads)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, N, T, S) the bias, in float32 or wider: half precision would round offsets together.

        Raises:
            ValueError: a row or column outside the grid.
        """
        for positions in (at_BTA, keys_BSA):
            self.refuse_past(positions, *self.extent)
        wide = torch.promote_types(self.up.weight.dtype, torch.float32)
        offset_OA = all_offsets(self.extent, at_BTA.device).to(wide)
        with no_autocast(at_BTA.device):
            hidden = _linear(self.up, offset_OA.sign() * offset_OA.abs().log1p()).relu()
            table_ON = _linear(self.down, F.dropout(hidden, self.config.dropout, self.training))
        return F.embedding(offset_index(at_BTA, keys_BSA, self.extent), table_ON).permute(0, 3, 1, 2)

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        """(1|B, N, T, S), the same for all queries and keys."""
        del q_BNTH, k_BNSH, call
        return prepared


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """The layer in the input's dtype."""
    return F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))
