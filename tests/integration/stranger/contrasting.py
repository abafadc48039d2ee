"""Differential attention: a second softmax map, weighted by a learned lambda, is subtracted from the first.

    output = norm((softmax(s q1 k1^T) - lambda softmax(s q2 k2^T)) v) (1 - lambda_init)
    lambda = exp(lq1 . lk1) - exp(lq2 . lk2) + lambda_init,  lambda_init = 0.8 - 0.6 exp(-0.3 layer), layers from 0

``norm`` is an RMS norm of each head by itself, with one gain for all heads; the four lambda vectors are shared by the
heads too. Differential Transformer, Ye et al. 2024, https://arxiv.org/abs/2410.05258. Parameters and multiply-adds as
multi-head attention with as many heads; twice the softmaxes. The paper halves ``heads`` against its baseline.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call

__all__ = ["Contrasting"]


@final
class Contrasting(HeadedAttention):
    """Score heads 0 to N - 1 make the first maps, N to 2 N - 1 the second, so that grouped keys keep two maps apart."""

    grouped = True
    kernels = ("eager", "sdpa")

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs."""

        eps: float = 1e-5
        """Added to the mean square of a head's output."""

    def __init__(self, config: Config, **parent: Any) -> None:
        super().__init__(config, score_heads=2 * parent["heads"], **parent)
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * self.layer)
        self.lq1 = nn.Parameter(torch.empty(self.score_size))
        self.lk1 = nn.Parameter(torch.empty(self.score_size))
        self.lq2 = nn.Parameter(torch.empty(self.score_size))
        self.lk2 = nn.Parameter(torch.empty(self.score_size))
        self.gain = nn.Parameter(torch.empty(self.value_size))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """The gain is 1, the lambda vectors are normal with deviation 0.1."""
        if name == "gain":
            parameter.fill_(1.0)
        else:
            parameter.normal_(0.0, 0.1, generator=generator)

    def weight(self) -> Tensor:
        """Lambda, in float32 or wider."""
        wide = torch.promote_types(self.lq1.dtype, torch.float32)
        first = (self.lq1.to(wide) * self.lk1.to(wide)).sum().exp()
        second = (self.lq2.to(wide) * self.lk2.to(wide)).sum().exp()
        return first - second + self.lambda_init

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V); queries have 2 N heads, keys 2 G, values G."""
        weight = self.weight().to(v_BNSV.dtype)
        if call.kernel == "sdpa":
            first, second = call.sdpa(q_BNTH, k_BNSH, torch.cat([v_BNSV, v_BNSV], 1)).chunk(2, 1)
            out_BNTV = first - weight * second
        else:
            first, second = call.softmax(call.scores(q_BNTH, k_BNSH)).chunk(2, 1)
            out_BNTV = call.mix(first - weight * second, v_BNSV)
        normed_BNTV = F.rms_norm(out_BNTV, (self.value_size,), eps=self.config.eps)
        return normed_BNTV * ((1 - self.lambda_init) * self.gain).to(normed_BNTV.dtype)
