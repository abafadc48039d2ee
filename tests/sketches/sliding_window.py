"""Softmax over the nearest keys only; the cache forgets the others.

Beltagy et al. 2020, section 3.1, arXiv:2004.05150. Memory of the cache: window keys, whatever the length.
"""

from __future__ import annotations

import dataclasses

from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.contracts.values.mask import Mask

__all__ = ["SlidingWindow"]


class SlidingWindow(HeadedAttention):
    """The frame hands over the keys that are kept; a mask with a smaller window of its own wins."""

    offers = HeadedAttention.offers - {"cross"}
    kernels = ("eager", "sdpa")

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs."""

        window: int = 3
        """Keys that a query sees on one side, its own included."""

    def narrow(self, mask: Mask) -> Mask:
        """Nothing beyond the window."""
        return mask.narrow(window=self.config.window)

    def keep(self) -> int:
        """As many as it sees."""
        return self.config.window

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V)."""
        if call.kernel == "sdpa":
            return call.sdpa(q_BNTH, k_BNSH, v_BNSV)
        return call.softmax(call.scores(q_BNTH, k_BNSH)) @ v_BNSV
