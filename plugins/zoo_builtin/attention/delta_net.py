"""The delta rule: each token replaces what the memory says about its key instead of adding to it.

    S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T,   o_t = scale * S_t^T q_t,   beta_t = sigmoid(w_n x_t)

Queries and keys have length 1; before that, queries, keys and values pass a short convolution and SiLU. The output
of each head is normalized.
Yang et al. 2024, "Parallelizing linear transformers with the delta rule over sequence length", sections 2.2 and 3,
arXiv:2406.06484; the rule is of Schlag et al. 2021, arXiv:2102.11174.
Cost for T tokens: T D times about 6 C + 6 H multiply-adds in chunks of C tokens; the cache holds H^2 numbers a head
and W - 1 inputs of the convolutions.

Dimension legend: B batch, T tokens, D width, N heads, G key/value heads, H head size, V value size, W taps.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call, repeat_heads
from zoo.nn.recurrence import Steps, recur, steps_of
from zoo.nn.short_convolution import ShortConvolution
from zoo.nn.unit_length import unit_length

__all__ = ["DeltaNet"]


@final
class DeltaNet(HeadedAttention):
    """A memory that is corrected, not only added to."""

    offers = frozenset({"causal", "cache", "padding", "documents"})
    keeps_keys = False
    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the delta rule."""

        bias: bool = False
        """Biases in the projections."""
        taps: int = 4
        """Tokens that the short convolutions see, the own included."""
        eps: float = 1e-5
        """Added to the mean square in the norm of the output."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.beta = nn.Linear(self.dim, self.heads, bias=False)
        self.query_convolution, self.key_convolution, self.value_convolution = (
            ShortConvolution(layer.out_features, config.taps) for layer in (self.query, self.key, self.value)
        )
        self.norm = nn.RMSNorm(self.value_size, eps=config.eps)

    def attend(self, q_BNTH: Tensor, k_BGTH: Tensor, v_BGTV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V)."""
        steps = steps_of(call.tokens())
        q_BNTH = unit_length(self._convolved(self.query_convolution, q_BNTH, steps, call, "queries"))
        k_BGTH = unit_length(self._convolved(self.key_convolution, k_BGTH, steps, call, "keys"))
        v_BGTV = self._convolved(self.value_convolution, v_BGTV, steps, call, "values")
        k_BNTH, v_BNTV = (repeat_heads(x, self.heads) for x in (k_BGTH, v_BGTV))
        beta_BNT1 = self._split(self.beta(call.x_BTD), 1).to(k_BNTH.dtype).sigmoid()
        out_BNTV = recur(
            q_BNTH * call.scale, k_BNTH * beta_BNT1, v_BNTV, read_BNTH=k_BNTH, steps=steps, cache=call.cache
        )
        return self.norm(out_BNTV.to(self.norm.weight.dtype)).to(v_BGTV.dtype)

    def _convolved(self, layer: ShortConvolution, x_BNTH: Tensor, steps: Steps, call: Call, name: str) -> Tensor:
        out_BTC = layer(x_BNTH.transpose(1, 2).flatten(2), steps, call.cache, name)
        return F.silu(self._split(out_BTC, x_BNTH.shape[-1]))
