"""A learned penalty on distance, one for each head; change what ``bias`` says.

    score(t, s) + bias,  bias = -softplus(slope_n) |p_t - p_s|

Override one of embed, rotate and bias. Positions are given: they need not be 0, 1, 2, ...
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call

__all__ = ["Mine"]


class Mine(Position):
    """B batch, T queries, S keys, N heads, A axes of a position."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.slope = nn.Parameter(torch.empty(self.heads))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Gentle in the first head, steep in the last."""
        parameter.copy_(torch.linspace(-4.0, 0.0, len(parameter)))

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, 1, T, S) distances, once a forward pass."""
        return (at_BTA[:, None, :, None, 0] - keys_BSA[:, None, None, :, 0]).abs()

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        """(1|B, N, T, S), in float32 or wider whatever the model is in."""
        slope = F.softplus(self.slope.to(torch.promote_types(self.slope.dtype, torch.float32)))
        return -slope[:, None, None] * prepared
