"""Gated linear attention: each element of the keys forgets at a rate that the token itself decides.

    S_t = Diag(alpha_t) S_{t-1} + k_t v_t^T,   o_t = scale * S_t^T q_t,   alpha_t = sigmoid(W_2 W_1 x_t + b)^(1 / tau)
    out = W_o (swish(W_r x + b_r) * LayerNorm(o))

Yang et al. 2023, "Gated linear attention transformers with hardware-efficient training", section 4 and 4.4,
arXiv:2312.06635. Keys have half the size of values, as there.
Cost for T tokens: T D (1.25 C + 2 H) multiply-adds in chunks of C tokens and a few exponentials for each element; the
cache holds 2 H^2 numbers a head.

Dimension legend: B batch, T tokens, D width, N heads, H key size, V value size.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.nn.recurrence import recur, steps_of

__all__ = ["GatedLinear"]


@final
class GatedLinear(HeadedAttention):
    """A recurrence with a decay of each key element; heads are normalized and gated before they are merged."""

    offers = frozenset({"causal", "cache", "padding", "documents"})
    keeps_keys = False

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of gated linear attention."""

        size: int | None = None
        """Size H of a key head; null means half of width / heads, which values have."""
        bias: bool = False
        """Biases in the projections; the gates have theirs anyway."""
        rank: int = 16
        """Elements between the two matrices of the decay."""
        temperature: float = 16.0
        """Root tau that is taken of the decay: the larger, the slower everything is forgotten."""
        eps: float = 1e-5
        """Added to the variance in the norm."""

    def __init__(self, config: Any, *, dim: int, heads: int, **parent: Any) -> None:
        if dim % heads:
            raise ValueError(f"width {dim} is not divisible by {heads} heads")
        size = config.size or max(1, dim // heads // 2)
        config = dataclasses.replace(config, size=size)
        super().__init__(config, dim=dim, heads=heads, value_size=dim // heads, **parent)
        self.decay = nn.Sequential(nn.Linear(dim, config.rank, bias=False), nn.Linear(config.rank, heads * size))
        self.gate = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(self.value_size, eps=config.eps)

    def attend(self, q_BNTH: Tensor, k_BNTH: Tensor, v_BNTV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V)."""
        decay_BNTH = self._split(self.decay(call.x_BTD), self.score_size)
        decay_BNTH = -F.softplus(-decay_BNTH.to(torch.promote_types(decay_BNTH.dtype, torch.float32)))  # log sigmoid
        out_BNTV = recur(
            q_BNTH * call.scale,
            k_BNTH,
            v_BNTV,
            decay_BNTX=decay_BNTH / self.config.temperature,
            steps=steps_of(call.tokens()),
            cache=call.cache,
        )
        gate_BNTV = F.silu(self._split(self.gate(call.x_BTD), self.value_size))
        return self.norm(out_BNTV.to(self.norm.weight.dtype)).to(v_BNTV.dtype) * gate_BNTV
