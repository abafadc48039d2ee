"""Queries and keys are added, not multiplied: a small network with one hidden layer compares them.

    score(t, s) = scale * w_n^T tanh(q_t + k_s)                               for each head n

Bahdanau et al. 2015, "Neural machine translation by jointly learning to align and translate", section 3.1 and
appendix A.1.2, arXiv:1409.0473, where there is one head and no scale; q = W x and k = U h are the projections.
A rotation isn't offered: tanh(q + k) would not depend on distances.
Cost for T queries and S keys: T S D additions, tanh and multiply-adds for the scores, and all T S D hidden elements in
memory, as many as a head has elements times those of the weights. There is no fused kernel.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call, no_autocast

__all__ = ["Additive"]


@final
class Additive(HeadedAttention):
    """Softmax attention with additive scores."""

    offers = HeadedAttention.offers - {"rotate"}

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.hidden = nn.Parameter(torch.empty(self.heads, self.score_size))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Standard normal, so that with the scale scores begin as large as those of inner products."""
        parameter.normal_(generator=generator)

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V) through (B, N, T, S, H)."""
        wide = torch.promote_types(q_BNTH.dtype, torch.float32)
        with no_autocast(q_BNTH.device):
            hidden_BNTSH = torch.tanh(q_BNTH.to(wide)[..., None, :] + k_BNSH.to(wide)[..., None, :, :])
            scores_BNTS = (hidden_BNTSH @ self.hidden.to(wide)[:, None, :, None]).squeeze(-1) * call.scale
        bias = call.place.bias(q_BNTH, k_BNSH, call)
        return call.softmax(scores_BNTS if bias is None else scores_BNTS + bias) @ v_BNSV
