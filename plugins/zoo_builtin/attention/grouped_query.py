"""Query heads in groups that share a key and a value head; multi-query attention is ``kv_heads: 1``.

Head n of N reads key/value head n // (N / G), so that the cache holds G heads instead of N.

Ainslie et al. 2023, "GQA", section 2.2, arXiv:2305.13245; Shazeer 2019, "Fast transformer decoding" (G = 1),
arXiv:1911.02150. Cost: that of multi_head, with G / N of its key and value projections and cache.
"""

from __future__ import annotations

from typing import final

from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call

__all__ = ["GroupedQuery"]


@final
class GroupedQuery(HeadedAttention):
    """Scaled dot-product attention with G key/value heads; G = N is multi_head."""

    kernels = ("eager", "sdpa", "flex")
    grouped = True

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), eager or fused; neither repeats the keys or values."""
        return call.attention(q_BNTH, k_BGSH, v_BGSV)
