"""The delta rule with a memory that fades: clears all of it at once, or corrects single entries.

    S_t = alpha_t S_{t-1} + beta_t k_t (v_t - alpha_t S_{t-1}^T k_t)^T,   o_t = S_t^T q_t / sqrt(H)
    alpha_t = exp(-exp(a_n) softplus(w_n x_t + b_n)),   beta_t = sigmoid(u_n x_t)
    out = W_o (RMSNorm(o) * SiLU(W_g x))

Queries and keys have length 1; before that, queries, keys and values pass a short convolution and SiLU.
Yang et al. 2024, "Gated delta networks: improving Mamba2 with delta rule", section 3, arXiv:2412.06464. Sizes are
the paper's: keys 3/4 of width / heads, values twice that, 6 D^2 parameters in all. Heads of values may share heads
of queries and keys, as in Qwen3-Next.
Cost for T tokens: T D times about 7 C + 8 H multiply-adds in chunks of C tokens; the cache holds 2 H^2 numbers a head
and W - 1 inputs of the convolutions.

Dimension legend: B batch, T tokens, D width, N heads of values, G heads of queries and keys, H size of these,
V size of values, W taps.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.config import Part
from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.call import repeat_heads
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.initialization import branch_output
from zoo.nn.decay_rates import log_rates, step_biases
from zoo.nn.recurrence import recur, steps_of
from zoo.nn.short_convolution import ShortConvolution
from zoo.nn.unit_length import unit_length

__all__ = ["GatedDeltaNet"]


@final
class GatedDeltaNet(Attention):
    """A delta rule with a decay of each head; heads are normalized and gated before they are merged."""

    offers = frozenset({"causal", "cache", "padding", "documents"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Part.Config):
        """Knobs of the gated delta rule."""

        size: int | None = None
        """Size H of queries and keys; null means 3/4 of width / heads."""
        value_size: int | None = None
        """Size V of values; null means twice that of keys."""
        key_heads: int | None = None
        """Heads G of queries and keys, a divisor of the heads; null means as many as heads."""
        taps: int = 4
        """Tokens that the short convolutions see, the own included."""
        eps: float = 1e-6
        """Added to the mean square in the norm of the output."""

    def __init__(self, config: Any, *, dim: int, heads: int, **parent: Any) -> None:
        super().__init__(config, dim=dim, heads=heads, **parent)
        if config.size is None and dim % heads:
            raise ValueError(f"width {dim} is not divisible by {heads} heads; change one, or set size")
        groups = heads if config.key_heads is None else config.key_heads
        if groups < 1 or heads % groups:
            raise ValueError(f"{heads} heads can't share {groups} heads of keys evenly (key_heads)")
        self.size = config.size or max(1, 3 * dim // heads // 4)
        self.value_size = config.value_size or 2 * self.size
        keys, values = groups * self.size, heads * self.value_size
        self.query, self.key = (nn.Linear(dim, keys, bias=False) for _ in range(2))
        self.value, self.gate = (nn.Linear(dim, values, bias=False) for _ in range(2))
        self.beta, self.step = (nn.Linear(dim, heads, bias=False) for _ in range(2))
        self.query_convolution, self.key_convolution = (ShortConvolution(keys, config.taps) for _ in range(2))
        self.value_convolution = ShortConvolution(values, config.taps)
        self.log_rate, self.step_bias = (nn.Parameter(torch.empty(heads)) for _ in range(2))
        self.norm = nn.RMSNorm(self.value_size, eps=config.eps)
        self.output = branch_output(nn.Linear(values, dim, bias=False))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """As Mamba-2 begins: rates from 1 to 16, steps from 0.001 to 0.1."""
        (log_rates if name == "log_rate" else step_biases)(parameter, generator)

    def forward(
        self,
        x_BTD: Tensor,
        *,
        context_BSD: Tensor | None = None,
        mask: Mask,
        place: Place = NOWHERE,
        cache: LayerCache | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        """(B, T, D) from (B, T, D), see ``Attention.forward``."""
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        call = self.call(x_BTD, mask=mask, place=place, cache=cache, notes=notes, dtype=x_BTD.dtype)
        steps = steps_of(call.tokens())
        q_BGTH, k_BGTH, v_BNTV = (
            _heads(F.silu(convolution(layer(x_BTD), steps, cache, name)), size)
            for name, layer, convolution, size in (
                ("queries", self.query, self.query_convolution, self.size),
                ("keys", self.key, self.key_convolution, self.size),
                ("values", self.value, self.value_convolution, self.value_size),
            )
        )
        q_BNTH, k_BNTH = (unit_length(repeat_heads(x, self.heads)) for x in (q_BGTH, k_BGTH))
        beta_BNT1, step_BNT1 = (_heads(layer(x_BTD), 1).to(q_BNTH.dtype) for layer in (self.beta, self.step))
        rate_N11, bias_N11 = (x.to(q_BNTH.dtype)[:, None, None] for x in (self.log_rate, self.step_bias))
        decay_BNT1 = -rate_N11.exp() * F.softplus(step_BNT1 + bias_N11)
        out_BNTV = recur(
            q_BNTH * self.size**-0.5,
            k_BNTH * beta_BNT1.sigmoid(),
            v_BNTV,
            decay_BNTX=decay_BNT1,
            read_BNTH=k_BNTH * decay_BNT1.exp(),
            steps=steps,
            cache=cache,
        )
        gate_BNTV = F.silu(_heads(self.gate(x_BTD), self.value_size))
        out_BNTV = self.norm(call.emptied(out_BNTV).to(self.norm.weight.dtype)).to(v_BNTV.dtype)
        return self.output((out_BNTV * gate_BNTV).transpose(1, 2).flatten(2))


def _heads(x_BTX: Tensor, size: int) -> Tensor:
    """(B, heads, T, size)."""
    return x_BTX.unflatten(-1, (-1, size)).transpose(1, 2)
