"""A query attends to the keys that score highest, and to no others.

    weights[t] = softmax over the s with score(t, s) >= the k-th largest score of query t

The mask comes first: the k are among the keys that a query may see. Where several keys have the k-th largest score,
all of them stay, so that nothing depends on their order; a query that sees fewer than k sees them all.
Zhao et al. 2019, "Explicit sparse transformer: concentrated attention through explicit selection", arXiv:1912.11637.
In half precision two scores that are nearly equal may change places, and with them the choice.
Cost: that of grouped_query and the search for the k-th largest of T S N scores. The weights are sparse, the work isn't,
and there is no fused kernel.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call

__all__ = ["TopK"]


@final
class TopK(HeadedAttention):
    """Softmax attention to the k largest scores."""

    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the choice."""

        keys: int = 8
        """Keys k that each query and head attends to (paper: 8 is best in translation)."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.keys < 1:
            raise ValueError(f"a query must attend to at least 1 key, got {config.keys} (keys)")

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V)."""
        scores_BNTS = call.hide(call.scores(q_BNTH, k_BGSH))
        least_BNT1 = scores_BNTS.topk(min(self.config.keys, scores_BNTS.shape[-1])).values[..., -1:]
        chosen_BNTS = scores_BNTS.masked_fill(scores_BNTS < least_BNT1, torch.finfo(scores_BNTS.dtype).min)
        return call.mix(call.softmax(chosen_BNTS), v_BGSV)
