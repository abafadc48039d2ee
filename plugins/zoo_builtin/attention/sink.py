"""Softmax with one more term below the line, so that a head may attend to nothing.

    weights[t, s] = exp(score(t, s)) / (exp(sink_n) + sum over s' of exp(score(t, s')))

The weights of a query sum to less than 1; what is missing goes to a sink without a value. With ``learned`` each head
has a sink of its own: OpenAI 2025, "gpt-oss-120b & gpt-oss-20b model card", section 2.2, arXiv:2508.10925. Without,
the sink is 0, softmax_1 of Miller 2023, "Attention is off by one" (evanmiller.org/attention-is-off-by-one.html).
Cost: that of grouped_query. The fused kernel sees the sink as a key in front with values of 0; under a window it isn't
cut into blocks.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call, repeat_heads

__all__ = ["Sink"]


@final
class Sink(HeadedAttention):
    """Scaled dot-product attention with a sink for weight that no key should have."""

    kernels = ("eager", "sdpa")
    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the sink."""

        learned: bool = True
        """Whether each head learns the score of its sink, from 0; otherwise it stays there."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.learned:
            self.sink = nn.Parameter(torch.empty(self.heads))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """0: as softmax_1."""
        parameter.zero_()

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), eager or fused."""
        if call.kernel == "sdpa":
            return self._fused(q_BNTH, k_BGSH, v_BGSV, call)
        scores_BNTS = call.hide(call.scores(q_BNTH, k_BGSH))
        sink_BNT1 = self._sink_N11(scores_BNTS).expand(*scores_BNTS.shape[:3], 1)
        return call.apply(torch.cat([sink_BNT1, scores_BNTS], -1).softmax(-1)[..., 1:], v_BGSV)

    def _sink_N11(self, like: Tensor) -> Tensor:
        sink_N = self.sink.to(like.dtype) if self.config.learned else like.new_zeros(like.shape[1])
        return sink_N[:, None, None]

    def _fused(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """The sink is a key in front of the others. One more element of the queries is its score, and 0 for them.

        Under a causal mask a query is put in front as well, so that the triangle stays where it is.
        """
        call.masked = True
        allowed, is_causal = call.mask.sdpa(q_BNTH.device)
        if call.place.has_bias():
            allowed, is_causal = self._bias(q_BNTH, k_BGSH, call), False
        if allowed is not None:  # the sink is open to all: True, and nothing added to its score
            allowed = F.pad(allowed, (1, 0), value=float(allowed.dtype == torch.bool))
        score_BNT1 = (self._sink_N11(q_BNTH) / self.scale).expand(*q_BNTH.shape[:3], 1)
        q_BNTX = F.pad(torch.cat([q_BNTH, score_BNT1], -1), (0, 0, int(is_causal), 0))
        sink_BG1X = F.pad(torch.zeros_like(k_BGSH[:, :, :1]), (0, 1), value=1.0)
        out_BNTV = F.scaled_dot_product_attention(
            q_BNTX,
            torch.cat([sink_BG1X, F.pad(k_BGSH, (0, 1))], 2),
            F.pad(v_BGSV, (0, 1, 1, 0)),  # kernels without a T x S want one size of all three
            attn_mask=allowed,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=is_causal,
            scale=self.scale,
            enable_gqa=k_BGSH.shape[1] != q_BNTH.shape[1],
        )
        return out_BNTV[:, :, int(is_causal) :, : self.value_size]

    def _bias(self, q_BNTH: Tensor, k_BGSH: Tensor, call: Call) -> Tensor:
        """(B, N, T, S) what is added to the scores, -inf where the mask hides."""
        bias = call.place.bias(q_BNTH, repeat_heads(k_BGSH, q_BNTH.shape[1]), call)
        bias = q_BNTH.new_zeros(1, 1, 1, 1) if bias is None else bias.to(q_BNTH.dtype)
        bias, allowed = bias.expand(*bias.shape[:3], k_BGSH.shape[2]), call.mask.dense(q_BNTH.device)
        return bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
