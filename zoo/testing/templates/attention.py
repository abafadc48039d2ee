"""Softmax attention as in the textbook; change what ``attend`` says.

    weights = softmax(scale * q k^T + bias),  output = weights v

Say here what is new, in one equation, with its paper and its cost.
"""

from __future__ import annotations

from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call

__all__ = ["Mine"]


class Mine(HeadedAttention):
    """B batch, T queries, S keys, N heads, H head size; a knob of your own is a field of a nested Config."""

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSH: Tensor, call: Call) -> Tensor:
        """(B, N, T, H)."""
        return call.softmax(call.scores(q_BNTH, k_BNSH)) @ v_BNSH
