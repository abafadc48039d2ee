"""Retention: linear attention whose memory fades by a fixed factor a token, another one in each head.

    S_t = gamma_n S_{t-1} + k_t v_t^T,   o_t = scale * S_t^T q_t,   gamma_n = 1 - 2^(-5 - n)
    out = W_o (swish(W_g x) * GroupNorm([o_1; ...; o_N]))

With a rotary position scheme queries and keys are turned, which makes this the published network. The two divisions
that the paper adds before the group norm cancel in it and are left out.
Sun et al. 2023, "Retentive network", section 2.1 and equations 5 to 8, arXiv:2307.08621.
Cost for T tokens: T D (C (1 + F) + 2 H F) multiply-adds in chunks of C tokens, F the factor of the values; the cache
holds F H^2 numbers a head.

Dimension legend: B batch, T tokens, D width, N heads, H head size, V value size.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.nn.head_norm import HeadNorm
from zoo.nn.recurrence import recur, steps_of

__all__ = ["Retention"]


@final
class Retention(HeadedAttention):
    """Multi-scale retention with a gated output."""

    offers = frozenset({"causal", "cache", "padding", "documents", "rotate"})
    keeps_keys = False

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of retention."""

        bias: bool = False
        """Biases in the projections."""
        value_factor: int = 2
        """Size of a value head over that of a key head."""
        eps: float = 1e-5
        """Added to the variance in the group norm."""

    def __init__(self, config: Any, *, dim: int, heads: int, **parent: Any) -> None:
        size = config.value_factor * (config.size or dim // heads)
        super().__init__(config, dim=dim, heads=heads, value_size=size, **parent)
        self.gate = nn.Linear(dim, heads * self.value_size, bias=config.bias)
        self.norm = HeadNorm(heads, self.value_size, config.eps)

    def attend(self, q_BNTH: Tensor, k_BNTH: Tensor, v_BNTV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V)."""
        exponents_N = torch.arange(5, 5 + self.heads, dtype=torch.float64, device=v_BNTV.device)
        decay_BNTX = torch.log1p(-(2.0**-exponents_N))[None, :, None, None].expand(-1, -1, v_BNTV.shape[2], -1)
        out_BNTV = recur(
            q_BNTH * call.scale,
            k_BNTH,
            v_BNTV,
            decay_BNTX=decay_BNTX,
            steps=steps_of(call.tokens()),
            cache=call.cache,
        )
        gate_BNTV = F.silu(self._split(self.gate(call.x_BTD), self.value_size))
        return self.norm(out_BNTV).to(v_BNTV.dtype) * gate_BNTV
