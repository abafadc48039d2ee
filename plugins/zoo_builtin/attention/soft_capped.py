"""Scores can't leave (-cap, cap): a tanh bends them smoothly before the softmax.

    weights = softmax(cap * tanh((scale * q k^T + bias) / cap))

Gemma Team 2024, "Gemma 2: improving open language models at a practical size", section 2, arXiv:2408.00118. What is
capped is the whole score, with what a position scheme adds; Gemma 2 adds nothing.
Cost: that of grouped_query and T S N tanh. There is no fused kernel: all T S N weights are in memory.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call

__all__ = ["SoftCapped"]


@final
class SoftCapped(HeadedAttention):
    """Softmax attention with bounded scores."""

    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the cap."""

        cap: float = 50.0
        """Bound of the scores (Gemma 2: 50.0)."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if not config.cap > 0:
            raise ValueError(f"cap must be above 0, got {config.cap}")

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V)."""
        cap = self.config.cap
        return call.mix(call.softmax(cap * (call.scores(q_BNTH, k_BGSH) / cap).tanh()), v_BGSV)
