"""Attention to near keys only: those fewer than ``window`` slots away, on either side where the mask is open.

    weights[t, s] = softmax over the s with |t - s| < window                  (and s <= t in a causal model)

A stack of L layers still sees L (window - 1) tokens back. While generating, the cache keeps ``window`` keys,
whatever the length. With ``kv_heads`` this is Mistral's attention; in turn with dense layers, GPT-3's:
``attention: [multi_head, {name: sliding_window, window: 256}]``.
Beltagy et al. 2020, "Longformer", section 3.1, arXiv:2004.05150 (there half the window lies on each side);
Jiang et al. 2023, "Mistral 7B", section 2, arXiv:2310.06825; Brown et al. 2020, "Language models are few-shot
learners" (GPT-3), section 2.1, "alternating dense and locally banded sparse attention patterns", arXiv:2005.14165.
Cost for T queries: fused, 1.5 T window D multiply-adds (2.5 on both sides) for the scores and as many for the
mixture, in blocks of window / 2 queries, and memory in proportion; eager, all T^2 of them. A position scheme that
adds a bias makes it quadratic, as the bias is.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.contracts.values.mask import Mask

__all__ = ["SlidingWindow"]


@final
class SlidingWindow(HeadedAttention):
    """Scaled dot-product attention in a window; the frame keeps as many keys, and fused it goes block by block."""

    # A window over another sequence would mean nothing: its slots aren't those of the queries.
    offers = HeadedAttention.offers - {"cross"}
    kernels = ("eager", "sdpa", "flex")
    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the sliding window."""

        window: int = 256
        """Keys that a query sees on one side, its own included; a smaller window of the mask wins."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.window < 1:
            raise ValueError(f"window must be at least 1, the query's own key, got {config.window}")

    def narrow(self, mask: Mask) -> Mask:
        """The mask with the window in it."""
        return mask.narrow(window=self.config.window)

    def keep(self) -> int:
        """As many keys as a query sees."""
        return self.config.window

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), eager or fused; neither repeats the keys or values."""
        return call.attention(q_BNTH, k_BGSH, v_BGSV)
