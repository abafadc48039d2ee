"""Weights are the positive scores, divided by the number of keys: keys don't compete, and many weights are 0.

    weights[t, s] = relu(scale * q_t k_s + bias) / n_t^exponent

n_t keys are seen by query t. A query to which all keys score below 0 gets 0.
Wortsman et al. 2023, "Replacing softmax with ReLU in vision transformers", section 3, arXiv:2309.08586, where n is the
length of the sequence; counted for each query, padding and a cache change nothing.
Cost: that of grouped_query without a softmax. There is no fused kernel: all T S N weights are in memory.
"""

from __future__ import annotations

import dataclasses
from typing import final

import torch.nn.functional as F
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call

__all__ = ["Relu"]


@final
class Relu(HeadedAttention):
    """Attention with a rectified score over the number of keys in place of the softmax."""

    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the weights."""

        exponent: float = 1.0
        """Power of the number of keys by which scores are divided; near 1 it trains as well as softmax."""

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V)."""
        scores = call.scores(q_BNTH, k_BGSH)
        weights = F.relu(call.hide(scores)) / call.visible_keys(scores) ** self.config.exponent
        return call.apply(weights, v_BGSV)
