"""Each weight is a sigmoid of its own score: keys don't compete.

    weights[t, s] = sigmoid(scale * q_t k_s + bias + offset),  offset = -log n_t

n_t keys are seen by query t, so that weights begin near 1 / n_t and sum to about 1.
Ramapuram et al. 2024, "Theory, analysis, and best practices for sigmoid self-attention", section 2, arXiv:2409.04431,
where n is the length of the sequence; counted for each query, padding and a cache change nothing.
Cost: that of grouped_query without a softmax. There is no fused kernel: all T S N weights are in memory.
"""

from __future__ import annotations

import dataclasses
from typing import final

import torch
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call

__all__ = ["Sigmoid"]


@final
class Sigmoid(HeadedAttention):
    """Attention with a sigmoid in place of the softmax."""

    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the sigmoid."""

        offset: float | None = None
        """What is added to all scores; null means -log of the number of keys that a query sees (paper, trained on
        2,048 tokens: -7.6 for all queries)."""

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V)."""
        scores = call.scores(q_BNTH, k_BGSH)
        offset = self.config.offset
        scores = scores - call.visible_keys(scores).log() if offset is None else scores + offset
        return call.apply(torch.sigmoid(call.hide(scores)), v_BGSV)
