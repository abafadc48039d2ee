"""Linear attention: a feature map in place of the softmax, so that the past fits into a matrix.

    out_t = phi(q_t)^T S_t / phi(q_t)^T z_t,  S_t = sum over s <= t of phi(k_s) v_s^T,  z_t = sum of phi(k_s)
    phi(x) = elu(x) + 1

Katharopoulos et al. 2020, "Transformers are RNNs", sections 3.2 and 3.3, arXiv:2006.16236.
Cost for T tokens: 2 T D H multiply-adds for the states and, where causal, 2 T D C more inside chunks of C = 64. A cache
holds H V + H numbers a key/value head, whatever the length. There are no weights to drop.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.nn.kernel_attention import OFFERS, kernel_attention

__all__ = ["Linear"]


@final
class Linear(HeadedAttention):
    """Weights phi(q)^T phi(k) over their sum."""

    offers = OFFERS
    grouped = True
    keeps_keys = False

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.scale is not None:
            raise ValueError(f"linear attention has no scores to scale, leave scale null; got {config.scale}")

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), the features in float32 or wider."""
        wide = torch.promote_types(q_BNTH.dtype, torch.float32)
        return kernel_attention(_features(q_BNTH.to(wide)), _features(k_BGSH.to(wide)), v_BGSV, call)


def _features(x_BNTH: Tensor) -> Tensor:
    """elu(x) + 1, without the cancellation of e^x - 1 + 1 where x is far below 0."""
    return torch.where(x_BNTH > 0, x_BNTH + 1, x_BNTH.clamp(max=0).exp())
