"""One attention as the article introduces it: queries of any size, values of the full width, no output projection.

    Q = beta_q 1^T + Omega_q X,  K = ..., V = ...                             (equation 12.2)
    Sa(X) = V Softmax(K^T Q)                                                  (12.3, ``scale: 1.0``)
    Sa(X) = V Softmax(K^T Q / sqrt(D_q))                                      (12.5, ``scale: null``)

Parameters: 2 D_q D + D^2 weights and 2 D_q + D biases, whatever the length.
"""

from __future__ import annotations

from typing import Any, final

from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call

__all__ = ["SingleHead"]


@final
class SingleHead(HeadedAttention):
    """Self-attention with one head; ``size`` is the article's D_q."""

    def __init__(self, config: Any, *, dim: int, heads: int = 1, **parent: Any) -> None:
        if heads != 1:
            raise ValueError(f"single_head has one head, it was given {heads}; set heads to 1 or use multi_head")
        super().__init__(config, dim=dim, heads=1, value_size=dim, output=False, **parent)

    def attend(self, q_B1TH: Tensor, k_B1SH: Tensor, v_B1SD: Tensor, call: Call) -> Tensor:
        """(B, 1, T, D), equation 12.1 for all positions at once."""
        return call.softmax(call.scores(q_B1TH, k_B1SH)) @ v_B1SD
