"""Heads exchange their scores before the softmax, and their weights after it.

    J_n = scale * q_n k_n^T + bias,  L_m = sum_n A[n, m] J_n,  W_m = softmax(L_m),  U_m = sum_n C[n, m] W_n

Shazeer et al. 2020, "Talking-heads attention", section 4, arXiv:2003.02436, with as many heads at each of the three
stages. A and C begin as the identity, where this is multi_head. A mixed weight may be negative or above 1.
Cost: that of multi_head and 2 T S N^2 multiply-adds; the weights of all heads are in memory, for each stage.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call, no_autocast

__all__ = ["TalkingHeads"]


@final
class TalkingHeads(HeadedAttention):
    """Softmax attention with a linear map over the heads on either side of the softmax."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.talk_before = nn.Parameter(torch.empty(self.heads, self.heads))
        self.talk_after = nn.Parameter(torch.empty(self.heads, self.heads))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """The identity: heads begin by minding their own business."""
        parameter.copy_(torch.eye(self.heads))

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V); scores are hidden after they were mixed, and hidden weights are 0 in all heads."""
        scores_BNTS = exchanged(call.scores(q_BNTH, k_BNSH), self.talk_before)
        return call.apply(exchanged(call.hide(scores_BNTS).softmax(-1), self.talk_after), v_BNSV)


def exchanged(x_BNTS: Tensor, talk_NM: Tensor) -> Tensor:
    """(B, M, T, S) sums over the heads, as precise as the input."""
    with no_autocast(x_BNTS.device):
        return torch.einsum("bnts,nm->bmts", x_BNTS, talk_NM.to(x_BNTS.dtype))
