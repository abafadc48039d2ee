"""Performer: softmax attention in expectation, by positive random features whose inner product estimates exp(q k).

    phi(x)_r = exp(w_r^T x - |x|^2 / 2) / sqrt(m),  r = 1 ... m;  E[phi(q)^T phi(k)] = exp(q^T k) for w_r ~ N(0, I)
    out_t = phi(q_t)^T S / phi(q_t)^T z,  S = sum of phi(k_s) v_s^T,  z = sum of phi(k_s);  q, k times sqrt(scale)

FAVOR+: directions are orthogonal within blocks of H, lengths those of independent vectors. They are drawn from the
seed, belong to the layer, are kept with its weights and not trained. The paper draws them anew now and then in
training; here they stay.
Choromanski et al. 2021, "Rethinking attention with performers", lemma 1 and section 2.4, arXiv:2009.14794.
Cost for T tokens: 2 T N m H multiply-adds for the features, 2 T N m V for writing the states and reading them, and,
where causal, T N C (m + V) more inside chunks of C = 64. A cache holds m V + 2 m numbers a head. There are no weights
to drop.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call, no_autocast
from zoo.nn.kernel_attention import OFFERS, averages, kernel_attention
from zoo.nn.recurrence import recur, steps_of

__all__ = ["Performer"]


@final
class Performer(HeadedAttention):
    """Weights phi(q)^T phi(k) over their sum; all heads of a layer share the directions."""

    offers = OFFERS
    keeps_keys = False

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the performer."""

        features: int | None = None
        """Random features m of a head; null means H ln H, rounded up. The error falls with the root of m."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.scale <= 0:
            raise ValueError(f"a performer splits its scale between queries and keys, so it must be > 0: {self.scale}")
        size = self.score_size
        count = max(1, math.ceil(size * math.log(size))) if config.features is None else config.features
        if count < 1:
            raise ValueError(f"features must be at least 1, got {count}")
        self.directions = nn.Parameter(torch.empty(count, size), requires_grad=False)

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Rows of random orthogonal matrices, each as long as a row of independent normal numbers is."""
        count, size = parameter.shape
        normal_FH = torch.randn(count, size, generator=generator, dtype=torch.float64)
        blocks_LHH = torch.randn(-(-count // size), size, size, generator=generator, dtype=torch.float64)
        basis_LHH, triangle_LHH = torch.linalg.qr(blocks_LHH)
        signs_L1H = triangle_LHH.diagonal(dim1=-2, dim2=-1).sign()[:, None]  # else some directions are preferred
        rows_FH = (basis_LHH * signs_L1H).mT.flatten(0, 1)[:count]
        parameter.copy_(rows_FH * normal_FH.norm(dim=1, keepdim=True))

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V); each feature is taken relative to its largest among the keys, which queries make up for.

        The largest product of a query is then 1: nothing overflows, and its sum doesn't vanish. In a causal pass the
        largest so far counts, so that later keys change nothing: where it grows, what was written before decays.
        """
        q_BNTF, k_BNSF = self._exponents(q_BNTH), self._exponents(k_BNSH)
        k_BNSF = k_BNSF.masked_fill(~call.valid_B1S1(k_BNSF), torch.finfo(k_BNSF.dtype).min)
        cache = call.cache if call.kind == "self" else None
        earlier_BN1F = None if cache is None else cache.get("peak")
        causal = call.kind == "self" and call.mask.causal and call.mask.prefix_B is None
        known_BNSF = k_BNSF.detach()
        peak_BNTF = known_BNSF.cummax(-2).values if causal else known_BNSF.amax(-2, keepdim=True)
        if earlier_BN1F is not None:
            peak_BNTF = torch.maximum(peak_BNTF, earlier_BN1F)
        if cache is not None:
            cache.put("peak", peak_BNTF[:, :, -1:])
        q_BNTF = q_BNTF + peak_BNTF
        q_BNTF = (q_BNTF - q_BNTF.detach().amax(-1, keepdim=True)).exp()
        k_BNSF = (k_BNSF - peak_BNTF).exp()
        if not causal:
            fade_BNF1 = None if earlier_BN1F is None else (earlier_BN1F - peak_BNTF).exp().mT
            return kernel_attention(q_BNTF, k_BNSF, v_BNSV, call, fade_BGF1=fade_BNF1)
        before_BNTF = torch.cat(
            [peak_BNTF[:, :, :1] if earlier_BN1F is None else earlier_BN1F, peak_BNTF[:, :, :-1]], 2
        )
        values = F.pad(v_BNSV.to(k_BNSF.dtype), (0, 1), value=1.0)  # the last column sums up the weights
        steps, decay_BNTF = steps_of(call.tokens()), before_BNTF - peak_BNTF
        sums = recur(q_BNTF, k_BNSF, values, decay_BNTX=decay_BNTF, steps=steps, cache=cache)
        return averages(sums).to(v_BNSV.dtype)

    def _exponents(self, x_BNTH: Tensor) -> Tensor:
        """(B, N, T, F) w^T x - |x|^2 / 2 in float32 or wider."""
        wide = torch.promote_types(x_BNTH.dtype, torch.float32)
        x_BNTH = x_BNTH.to(wide) * self.scale**0.5
        with no_autocast(x_BNTH.device):
            return x_BNTH @ self.directions.to(wide).T - x_BNTH.square().sum(-1, keepdim=True) / 2
