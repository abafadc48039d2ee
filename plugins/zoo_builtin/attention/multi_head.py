"""Several attentions side by side, each with its own queries, keys and values.

    MhSa(X) = Omega_c [Sa_1(X); ...; Sa_H(X)] + beta_c 1^T                    (article, equation 12.8)
    Sa(X) = V Softmax(K^T Q / sqrt(D_q))                                      (equation 12.5)

Vaswani et al. 2017, "Attention is all you need", section 3.2, arXiv:1706.03762.
Cost for T queries and S keys: T S D multiply-adds for the scores and as many for the mixture. The eager kernel
holds N T S weights; the fused one doesn't.
"""

from __future__ import annotations

from typing import Any, final

from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call

__all__ = ["MultiHead"]


@final
class MultiHead(HeadedAttention):
    """Scaled dot-product attention with as many key/value heads as query heads."""

    kernels = ("eager", "sdpa", "flex")

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.kv_heads != self.heads:
            raise ValueError(
                f"multi_head has one key/value head for each of its {self.heads} heads, kv_heads says "
                f"{self.kv_heads}; use grouped_query"
            )

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), eager or fused."""
        return call.attention(q_BNTH, k_BNSH, v_BNSV)
