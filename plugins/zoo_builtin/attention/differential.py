"""The difference of two softmax maps: what both attend to is noise, and cancels.

    out = (1 - lambda_0) norm((softmax(q1 k1^T) - lambda softmax(q2 k2^T)) v)
    lambda = exp(lq1 . lk1) - exp(lq2 . lk2) + lambda_0,  lambda_0 = 0.8 - 0.6 exp(-0.3 layer)

Ye et al. 2024, "Differential transformer", section 2.1, arXiv:2410.05258; the layer counts from 0, norm is RMS over
each head. There are 2 N score heads of half the size; heads n and n + N make output n, so that shared key heads
(kv_heads) stay apart, and each is rotated by itself. The map that can be looked at is the difference.
Cost: that of grouped_query, and once more the scores and the mixture where the kernel is fused. Weights of both maps
are dropped, each by itself; the paper says nothing of dropout.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.nn.rms import normalized

__all__ = ["Differential"]


@final
class Differential(HeadedAttention):
    """Two maps a head, one taken from the other, and a norm of each head's output."""

    kernels = ("eager", "sdpa")
    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the norm of each head."""

        norm_scale: bool = True
        """Whether the norm ends with learned factors, V for all heads together (DiffLlama: false)."""
        eps: float = 1e-5
        """Added to the mean square of a head's output."""

    def __init__(self, config: Any, *, heads: int, **parent: Any) -> None:
        super().__init__(config, heads=heads, score_heads=2 * heads, **parent)
        self.lambda_0 = 0.8 - 0.6 * math.exp(-0.3 * self.layer)
        self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2 = (
            nn.Parameter(torch.empty(self.score_size)) for _ in range(4)
        )
        self.norm = nn.RMSNorm(self.value_size, eps=config.eps, elementwise_affine=config.norm_scale)

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Normal with a deviation of 0.1, as published."""
        parameter.normal_(0.0, 0.1, generator=generator)

    def attend(self, q_BMTH: Tensor, k_BMSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V) from M = 2 N score heads, eager or fused."""
        balance = self._lambda()
        if call.kernel == "sdpa":
            first, second = self._fused(q_BMTH, k_BMSH, v_BGSV, call).chunk(2, 1)
            out_BNTV = first - balance.to(first.dtype) * second
        else:
            first, second = call.softmax(call.scores(q_BMTH, k_BMSH)).chunk(2, 1)
            if call.notes.wants_maps:
                one, other = call.notes.maps(call.layer, call.kind).chunk(2, 1)
                call.keep_map(one - balance * other)
            out_BNTV = call.mix(first - balance.to(first.dtype) * second, v_BGSV)
        return (1 - self.lambda_0) * normalized(out_BNTV, self.norm)

    def _fused(self, q_BMTH: Tensor, k_BMSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, 2 N, T, V) what each map makes of the values.

        Kernels without a T x S want values of the size of queries, which is half as much, so it goes by halves; but
        where weights are dropped, both halves must lose the same ones.
        """
        parts = 1 if self.training and self.dropout else 2
        mixed = [call.sdpa(q_BMTH, k_BMSH, part.repeat(1, 2, 1, 1)) for part in v_BGSV.chunk(parts, -1)]
        return torch.cat(mixed, -1)

    def _lambda(self) -> Tensor:
        """A number in float32 or wider."""
        wide = torch.promote_types(self.lambda_q1.dtype, torch.float32)
        first = (self.lambda_q1.to(wide) * self.lambda_k1.to(wide)).sum().exp()
        second = (self.lambda_q2.to(wide) * self.lambda_k2.to(wide)).sum().exp()
        return first - second + self.lambda_0
