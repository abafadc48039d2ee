"""cosFormer: linear attention with relu features, reweighted by the cosine of the distance.

    weight[t, s] = relu(q_t)^T relu(k_s) cos(pi (t - s) / 2 M)
                 = (relu(q_t) cos a_t)^T (relu(k_s) cos a_s) + (relu(q_t) sin a_t)^T (relu(k_s) sin a_s)
    out_t = sum of weight[t, s] v_s / sum of weight[t, s],  a_t = pi t / 2 M

M is the most tokens there can be, the parent's ``length``; at that distance a weight is 0. Order is built in.
Qin et al. 2022, "cosFormer", section 3, arXiv:2202.08791.
Cost for T tokens: 4 T D H multiply-adds for the states and, where causal, 3 T D C more inside chunks of C = 64. A
cache holds 2 H V + 2 H numbers a key/value head. There are no weights to drop.
"""

from __future__ import annotations

import math
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.nn.kernel_attention import OFFERS, kernel_attention

__all__ = ["Cosformer"]


@final
class Cosformer(HeadedAttention):
    """Features are twice as many as elements of a head."""

    # Over another sequence there is no distance: nobody says where a query stands in it.
    offers = OFFERS - {"cross"}
    ordered = True
    grouped = True
    keeps_keys = False
    length: int

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.scale is not None:
            raise ValueError(f"cosformer has no scores to scale, leave scale null; got {config.scale}")
        if self.length is None:
            raise ValueError("cosformer needs to know the most tokens there can be; give its parent a length")

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), the features in float32 or wider.

        Raises:
            ValueError: more tokens than the length, whose weights would be negative.
        """
        start, stop = call.mask.start, call.mask.start + call.mask.queries
        if stop > self.length:
            raise ValueError(f"{stop} tokens, cosformer was made for {self.length}; raise the length")
        wide = torch.promote_types(q_BNTH.dtype, torch.float32)
        angle_T1 = torch.arange(start, stop, dtype=wide, device=q_BNTH.device)[:, None] * (math.pi / 2 / self.length)
        turn = angle_T1.cos(), angle_T1.sin()
        return kernel_attention(_features(q_BNTH.to(wide), *turn), _features(k_BGSH.to(wide), *turn), v_BGSV, call)


def _features(x_BNTH: Tensor, cos_T1: Tensor, sin_T1: Tensor) -> Tensor:
    """(B, N, T, 2 H) from (B, N, T, H)."""
    x_BNTH = F.relu(x_BNTH)
    return torch.cat([x_BNTH * cos_T1, x_BNTH * sin_T1], -1)
