"""RWKV-7's time mixing: a delta rule whose decay, rate and erased key are vectors, all chosen by the token.

    S_t = (Diag(w_t) - (a_t * kappa_t) kappa_t^T) S_{t-1} + k_t v_t^T,   y_t = S_t^T r_t
    out = W_o (g_t * (GroupNorm(y_t) + sum over a head of (r_t * rho * k_t) v_t))

with, from inputs x' = x_t + mu * (x_{t-1} - x_t), one mu for each of them (token shift):

    r = W_r x'      w = exp(-e^(-1/2) sigmoid(w_0 + W_2 tanh(W_1 x')))    a = sigmoid(a_0 + A_2 A_1 x')
    p = W_k x'      kappa = (xi * p) / |xi * p| in each head              k = p * (1 + (a - 1) * alpha)
    u = W_v x'      v = u + sigmoid(v_0 + V_2 V_1 x') * (u of layer 0 - u)
    g = G_2 sigmoid(G_1 x')

Peng et al. 2025, "RWKV-7 Goose with expressive dynamic state evolution", section 4, arXiv:2503.14456; there S is
transposed. Initial values follow its code, but for the linear layers.
Cost for T tokens: T D times about 6 C + 6 H multiply-adds in chunks of C tokens; the cache holds H^2 numbers a head
and the last input.

Dimension legend: B batch, T tokens, D width, N heads, H head size.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.config import Part
from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.initialization import branch_output
from zoo.nn.head_norm import HeadNorm
from zoo.nn.recurrence import recur, steps_of
from zoo.nn.short_convolution import earlier, with_past
from zoo.nn.unit_length import unit_length

__all__ = ["RWKV7"]

FIRST_VALUES = "rwkv7.first_values"
"""Name in the notes of the values that layer 0 leaves for the others; where it is another mixer, there is no share."""


@final
class RWKV7(Attention):
    """A recurrence that erases one key and writes another; all heads have the width in common."""

    offers = frozenset({"causal", "cache", "padding", "documents"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Part.Config):
        """Knobs of RWKV-7; ranks that are null follow from the width as in its code, in steps of 32."""

        decay_rank: int | None = None
        """Elements between the two matrices of the decay; null means about 1.8 sqrt(D)."""
        rate_rank: int | None = None
        """The same for the rate a; null means about 1.8 sqrt(D)."""
        value_rank: int | None = None
        """The same for the share of the first layer's values; null means about 1.3 sqrt(D)."""
        gate_rank: int | None = None
        """The same for the gate; null means about 0.6 D^0.8."""
        eps: float | None = None
        """Added to the variance in the group norm; null means 1e-5 times the head size."""

    def __init__(self, config: Any, *, dim: int, heads: int, **parent: Any) -> None:
        super().__init__(config, dim=dim, heads=heads, **parent)
        if dim % heads:
            raise ValueError(f"width {dim} is not divisible by {heads} heads")
        self.size = dim // heads
        self.receptance, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.output = branch_output(nn.Linear(dim, dim, bias=False))
        root = dim**0.5
        self.decay = _low_rank(dim, config.decay_rank or _steps_of_32(1.8 * root), nn.Tanh())
        self.rate = _low_rank(dim, config.rate_rank or _steps_of_32(1.8 * root), nn.Identity())
        self.gate = _low_rank(dim, config.gate_rank or _steps_of_32(0.6 * dim**0.8), nn.Sigmoid())
        self.mix = nn.Parameter(torch.empty(6 * dim))
        self.decay_bias, self.rate_bias, self.removal, self.replacement, self.bonus = (
            nn.Parameter(torch.empty(dim)) for _ in range(5)
        )
        if self.layer:
            self.share = _low_rank(dim, config.value_rank or _steps_of_32(1.3 * root), nn.Identity())
            self.share_bias = nn.Parameter(torch.empty(dim))
        self.norm = HeadNorm(heads, self.size, config.eps or 1e-5 * self.size)

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Channels differ from the start: in how much of the token before they see, and in how long they remember."""
        channel_D = torch.arange(self.dim) / max(1, self.dim - 1)
        depth = self.layer / max(1, self.layers - 1)
        if name == "mix":
            exponents_61 = torch.tensor([0.2, 0.9, 0.7, 0.7, 0.9, 0.2])[:, None] * (1 - self.layer / self.layers)
            parameter.copy_((1 - (torch.arange(self.dim) / self.dim) ** exponents_61).flatten())
        elif name == "decay_bias":
            parameter.copy_(-6.5 + 5 * channel_D ** (0.85 + depth**0.5))
        else:
            begin = {"rate_bias": 0.0, "removal": 0.85, "replacement": 1.0, "bonus": -0.04, "share_bias": 1.0}
            parameter.fill_(begin[name])

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
        change_BTD = earlier(with_past(x_BTD, 1, steps, cache, "input"), 1, 1, steps) - x_BTD
        mixes_6D = self.mix.unflatten(0, (6, -1))
        of_r, of_w, of_k, of_v, of_a, of_g = (torch.addcmul(x_BTD, change_BTD, mu_D) for mu_D in mixes_6D)
        wide = torch.promote_types(x_BTD.dtype, torch.float32)
        decay_BTD = -math.exp(-0.5) * (self.decay_bias.to(wide) + self.decay(of_w)).sigmoid()
        rate_BTD = (self.rate_bias.to(wide) + self.rate(of_a)).sigmoid()
        key_BTD = self.key(of_k).to(wide)
        erased_BNTH = unit_length(self._heads(key_BTD * self.removal), eps=1e-12)
        k_BNTH = self._heads(key_BTD * (1 + (rate_BTD - 1) * self.replacement))
        v_BNTH = self._heads(self._values(of_v, call.notes))
        r_BNTH = self._heads(self.receptance(of_r))
        out_BNTH = recur(
            r_BNTH,
            k_BNTH,
            v_BNTH,
            decay_BNTX=self._heads(decay_BTD),
            read_BNTH=erased_BNTH,
            erase_BNTH=erased_BNTH * self._heads(rate_BTD),
            steps=steps,
            cache=cache,
        )
        bonus_N1H = self.bonus.to(wide).unflatten(0, (self.heads, 1, -1))
        out_BNTH = self.norm(out_BNTH) + (r_BNTH * bonus_N1H * k_BNTH).sum(-1, keepdim=True) * v_BNTH
        out_BTD = call.emptied(out_BNTH).to(v_BNTH.dtype).transpose(1, 2).flatten(2)
        return self.output(out_BTD * self.gate(of_g))

    def _values(self, of_v_BTD: Tensor, notes: Notes) -> Tensor:
        """(B, T, D), with a share of layer 0's."""
        values_BTD = self.value(of_v_BTD)
        if not self.layer:
            notes.keep(FIRST_VALUES, values_BTD)
            return values_BTD
        first_BTD = notes.get(FIRST_VALUES)
        share_BTD = (self.share_bias + self.share(of_v_BTD)).sigmoid()
        return values_BTD + ((values_BTD if first_BTD is None else first_BTD) - values_BTD) * share_BTD

    def _heads(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _steps_of_32(rank: float) -> int:
    return max(32, round(rank / 32) * 32)


def _low_rank(dim: int, rank: int, between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, rank, bias=False), between, nn.Linear(rank, dim, bias=False))
