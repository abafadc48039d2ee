"""Attention that forgets: each token's gates say how much of everything before it stays, head by head.

    f_t = sigmoid(w_n^T x_t + b_n),  score(t, s) = scale * q_t k_s + bias + log f_(s+1) + ... + log f_t

A gate near 1 keeps, and a head whose gates are 1 is that of grouped_query; so no positions are needed.
Lin et al. 2025, "Forgetting transformer: softmax attention with a forget gate", section 3, arXiv:2503.02130.
Causal only: how much was forgotten on the way to a later token, or in another sequence, means nothing. A token of
padding forgets nothing, and what another document forgot is hidden with it.
Cost: that of grouped_query and D N multiply-adds a token for the gates; a cached token holds N more numbers. Fused,
keys are repeated for the heads that share them, each with one element more (3 in half precision); eager, T S N sums
are in memory.
"""

from __future__ import annotations

import copy
import math
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call, repeat_heads
from zoo.contracts.values.place import Place

__all__ = ["Forgetting"]


@final
class Forgetting(HeadedAttention):
    """Softmax attention with a forget gate for each head."""

    offers = HeadedAttention.offers - {"bidirectional", "cross", "prefix"}
    kernels = ("eager", "sdpa")
    grouped = True

    def __init__(self, config: Any, *, dim: int, **parent: Any) -> None:
        super().__init__(config, dim=dim, **parent)
        self.forget = nn.Linear(dim, self.heads)

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), eager or fused; the queries are the last T of the keys' tokens."""
        log_kept_BNS = self._log_kept(call)
        if call.kernel == "sdpa":
            return self._fused(q_BNTH, k_BGSH, v_BGSV, log_kept_BNS, call)
        kept_BNTS = log_kept_BNS[..., -q_BNTH.shape[2] :, None] - log_kept_BNS[..., None, :]
        return call.mix(call.softmax(call.scores(q_BNTH, k_BGSH) + kept_BNTS), v_BGSV)

    def _log_kept(self, call: Call) -> Tensor:
        """(B, N, S) log f_1 + ... + log f_s, float32 or wider; summed anew with each token, for gates are cached."""
        gate_BTN = self.forget(call.x_BTD)
        wide = torch.promote_types(gate_BTN.dtype, torch.float32)
        log_gate_BNS = -F.softplus(-gate_BTN.to(wide), threshold=40).transpose(1, 2)
        if call.cache is not None:
            log_gate_BNS = call.cache.append("log_gate", log_gate_BNS, 2)
        if call.mask.valid_BS is not None:
            log_gate_BNS = log_gate_BNS.masked_fill(~call.mask.valid_BS[:, None], 0.0)
        return log_gate_BNS.cumsum(-1)

    def _fused(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, log_kept_BNS: Tensor, call: Call) -> Tensor:
        """Of the sum up to t without that up to s, only the second differs between keys: more elements of these.

        Queries have a power of two there, which no precision rounds; in half precision keys have three elements,
        each what the ones before it rounded away.
        """
        heads, size = q_BNTH.shape[1], q_BNTH.shape[-1]
        power = 2.0 ** round(-math.log2(self.scale))
        rest_BNS, pieces = -log_kept_BNS / (self.scale * power), []
        for _ in range(1 if q_BNTH.dtype.itemsize >= 4 else 3):
            pieces.append(rest_BNS.to(q_BNTH.dtype))
            rest_BNS = (rest_BNS - pieces[-1]).detach()
        k_BNSH, v_BNSV = repeat_heads(k_BGSH, heads), repeat_heads(v_BGSV, heads)
        k_BNSX = torch.cat([k_BNSH, torch.stack(pieces, -1)], -1)
        q_BNTX = F.pad(q_BNTH, (0, len(pieces)), value=power)
        missing = max(0, q_BNTX.shape[-1] - self.value_size)  # kernels without a T x S want one size of all three
        call.masked, inner = True, copy.copy(call)
        inner.place = _Narrow(call.place, size)
        return inner.sdpa(q_BNTX, k_BNSX, F.pad(v_BNSV, (0, missing)))[..., : self.value_size]


class _Narrow(Place):
    """A place that sees the elements of queries and keys that it knows."""

    def __init__(self, place: Place, size: int) -> None:
        super().__init__(None)
        self._place, self._size = place, size

    def has_bias(self) -> bool:
        """As the place."""
        return self._place.has_bias()

    def bias(self, q_BNTX: Tensor, k_BNSX: Tensor, call: Call) -> Tensor | None:
        """As the place, without the elements behind."""
        return self._place.bias(q_BNTX[..., : self._size], k_BNSX[..., : self._size], call)
