"""Mamba-2: a state space whose decay and input the token chooses, with one decay for all elements of a head.

    S_t = exp(-exp(a_n) dt_t) S_{t-1} + B_t (dt_t x_t)^T,   y_t = S_t^T C_t + d_n x_t,   dt_t = softplus(w_n u_t + b_n)
    out = W_o RMSNorm(y * SiLU(W_z u))

u is the layer's input; x, B and C are linear in it and pass a short convolution and SiLU together. B and C, the keys
and queries of attention, are shared by all heads of a group.
Dao and Gu 2024, "Transformers are SSMs", sections 6 and 7, arXiv:2405.21060.
Cost for T tokens with E times the width inside: T E D (C + 2 K) + T G C K multiply-adds in chunks of C tokens;
the cache holds E D K numbers and W - 1 inputs of the convolution.

Dimension legend: B batch, T tokens, D width, I inner width, N heads, G groups, K state size, V value size, W taps.
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

__all__ = ["Mamba2"]


@final
class Mamba2(Attention):
    """The mixer of Mamba-2, called state space duality."""

    offers = frozenset({"causal", "cache", "padding", "documents"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Part.Config):
        """Knobs of Mamba-2."""

        expand: int = 2
        """Inner width I over the width."""
        state_size: int = 128
        """Elements K of B and C, rows of a head's state."""
        groups: int = 1
        """Groups G of heads that share B and C, a divisor of the heads."""
        taps: int = 4
        """Tokens that the short convolution sees, the own included."""
        bias: bool = False
        """Biases in the projections."""
        convolution_bias: bool = True
        """Whether the short convolution has a bias."""
        eps: float = 1e-5
        """Added to the mean square in the norm of the output."""

    def __init__(self, config: Any, *, dim: int, heads: int, **parent: Any) -> None:
        super().__init__(config, dim=dim, heads=heads, **parent)
        inner = config.expand * dim
        if inner % heads:
            raise ValueError(f"inner width {inner} (expand {config.expand} x {dim}) is not divisible by {heads} heads")
        if config.groups < 1 or heads % config.groups:
            raise ValueError(f"{heads} heads can't share {config.groups} groups evenly (groups)")
        self.value_size = inner // heads
        self.sizes = [inner, config.groups * config.state_size, config.groups * config.state_size]
        self.gate = nn.Linear(dim, inner, bias=config.bias)
        self.mixed = nn.Linear(dim, sum(self.sizes), bias=config.bias)
        self.step = nn.Linear(dim, heads, bias=config.bias)
        self.convolution = ShortConvolution(sum(self.sizes), config.taps, bias=config.convolution_bias)
        self.log_rate, self.step_bias, self.skip = (nn.Parameter(torch.empty(heads)) for _ in range(3))
        self.norm = nn.Parameter(torch.empty(inner))
        self.output = branch_output(nn.Linear(inner, dim, bias=config.bias))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Rates from 1 to 16, steps from 0.001 to 0.1, ones in the norm and for what goes past the state."""
        if name == "log_rate":
            log_rates(parameter, generator)
        elif name == "step_bias":
            step_biases(parameter, generator)
        else:
            parameter.fill_(1.0)

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
        mixed_BTX = F.silu(self.convolution(self.mixed(x_BTD), steps, cache, "inputs"))
        v_BTI, k_BTX, q_BTX = mixed_BTX.split(self.sizes, -1)
        q_BNTK, k_BNTK = (self._shared(_heads(x, self.config.state_size)) for x in (q_BTX, k_BTX))
        wide = torch.promote_types(v_BTI.dtype, torch.float32)
        v_BNTV = _heads(v_BTI, self.value_size).to(wide)
        rate_N11, bias_N11, skip_N11 = (x.to(wide)[:, None, None] for x in (self.log_rate, self.step_bias, self.skip))
        step_BNT1 = F.softplus(_heads(self.step(x_BTD), 1).to(wide) + bias_N11)
        decay_BNT1 = -rate_N11.exp() * step_BNT1
        out_BNTV = recur(q_BNTK, k_BNTK, v_BNTV * step_BNT1, decay_BNTX=decay_BNT1, steps=steps, cache=cache)
        out_BTI = call.emptied(out_BNTV + skip_N11 * v_BNTV).transpose(1, 2).flatten(2)
        return self.output(self._normalized(out_BTI * F.silu(self.gate(x_BTD).to(wide))).to(v_BTI.dtype))

    def _shared(self, x_BGTK: Tensor) -> Tensor:
        """Groups as heads; a single one stays as it is, all heads then share its products."""
        return x_BGTK if self.config.groups == 1 else repeat_heads(x_BGTK, self.heads)

    def _normalized(self, x_BTI: Tensor) -> Tensor:
        """Mean square 1 in each group."""
        x_BTGX = x_BTI.unflatten(-1, (self.config.groups, -1))
        return F.rms_norm(x_BTGX, x_BTGX.shape[-1:], eps=self.config.eps).flatten(-2) * self.norm.to(x_BTI.dtype)


def _heads(x_BTX: Tensor, size: int) -> Tensor:
    """(B, heads, T, size)."""
    return x_BTX.unflatten(-1, (-1, size)).transpose(1, 2)
