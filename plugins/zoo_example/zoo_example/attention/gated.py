"""Multi-head attention whose heads are each opened or closed by a gate that the query's own token controls.

    Gated(X)_n = sigmoid(w_n^T X + b_n) * Sa_n(X)        for each head n, before the output projection

A head that has nothing to say can be silent, where softmax alone must always attend to something.
Qiu et al. 2025, "Gated attention for large language models", section 2.2 (headwise gate at the output of the
attention), arXiv:2505.06708. Cost: that of grouped_query and N D multiply-adds per token for the gates.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call

__all__ = ["Gated"]


@final
class Gated(HeadedAttention):
    """Scaled dot-product attention with a sigmoid gate on the output of each head."""

    kernels = ("eager", "sdpa")
    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the gates, beside those of every attention with heads."""

        gate_bias: bool = True
        """A bias in the gates; it starts at 0, where a gate lets half through."""

    def __init__(self, config: Any, *, dim: int, heads: int, **parent: Any) -> None:
        super().__init__(config, dim=dim, heads=heads, **parent)
        self.gate = nn.Linear(dim, heads, bias=config.gate_bias)

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), eager or fused, each head times its gate."""
        gate_BNT1 = torch.sigmoid(self.gate(call.x_BTD)).transpose(1, 2)[..., None]
        if call.kernel == "sdpa":
            return gate_BNT1 * call.sdpa(q_BNTH, k_BGSH, v_BGSV)
        return gate_BNT1 * call.mix(call.softmax(call.scores(q_BNTH, k_BGSH)), v_BGSV)
