"""What attention found passes a gate that the query's own token opens or closes, before the output projection.

    out = sigmoid(W_g x) * softmax(scale * q k^T + bias) v                    per element, or one number per head

Softmax weights always sum to 1; with the gate a head can be silent, and needs no token to dump its weight on.
Qiu et al. 2025, "Gated attention for large language models", section 2.2 (position G1), arXiv:2505.06708; per element
it is the gate of Qwen3-Next. The map that can be looked at is the softmax, without the gate.
Cost: that of grouped_query and D N V (per element) or D N (per head) multiply-adds a token.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call

__all__ = ["GatedOutput"]


@final
class GatedOutput(HeadedAttention):
    """Scaled dot-product attention with a sigmoid gate on its output."""

    kernels = ("eager", "sdpa", "flex")
    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the gates."""

        per: Literal["element", "head"] = "element"
        """Whether each element of a head's output has a gate of its own, or the head has one."""

    def __init__(self, config: Any, *, dim: int, **parent: Any) -> None:
        super().__init__(config, dim=dim, **parent)
        self.gate = nn.Linear(dim, self.heads * (self.value_size if config.per == "element" else 1), bias=config.bias)

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), eager or fused, times the gates."""
        gate_BNTX = torch.sigmoid(self.gate(call.x_BTD)).unflatten(-1, (q_BNTH.shape[1], -1)).transpose(1, 2)
        return gate_BNTX * call.attention(q_BNTH, k_BGSH, v_BGSV)
