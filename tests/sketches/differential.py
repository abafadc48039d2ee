"""The difference of two softmax maps: what both attend to is noise, and cancels.

    out = norm((softmax(q1 k1^T) - lambda softmax(q2 k2^T)) v)

Ye et al. 2024, arXiv:2410.05258. 2 N score heads of half the size; heads n and n + N make one output, so that
shared key heads (kv_heads) stay apart.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call

__all__ = ["Differential"]


class Differential(HeadedAttention):
    """Each score head is rotated by itself: the halves are declared, not split in ``attend``."""

    def __init__(self, config: Any, *, heads: int, **parent: Any) -> None:
        super().__init__(config, heads=heads, score_heads=2 * heads, **parent)
        self.balance = nn.Parameter(torch.empty(heads))
        self.norm = nn.RMSNorm(self.value_size, eps=1e-5)

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """As the paper's first layer."""
        parameter.fill_(0.2)

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V)."""
        first, second = call.softmax(call.scores(q_BNTH, k_BNSH)).chunk(2, 1)
        return self.norm((first - self.balance[:, None, None] * second) @ v_BNSV)
