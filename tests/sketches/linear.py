"""Linear attention: a feature map in place of the softmax, so that the past fits into a matrix.

    out_t = phi(q_t) S_t / phi(q_t) z_t,  S_t = sum of phi(k_s) v_s^T,  z_t = sum of phi(k_s),  phi = elu + 1

Katharopoulos et al. 2020, arXiv:2006.16236. The cache holds S and z: H V + H numbers a head, whatever the length.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.initialization import branch_output

__all__ = ["Linear"]


class Linear(Attention):
    """A recurrence of each document's own, computed for a chunk of tokens at a time."""

    offers = frozenset({"causal", "bidirectional", "cache", "padding", "documents"})

    def __init__(self, config: Any, *, dim: int, heads: int, **parent: Any) -> None:
        super().__init__(config, dim=dim, heads=heads, **parent)
        if dim % heads:
            raise ValueError(f"width {dim} is not divisible by {heads} heads")
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.output = branch_output(nn.Linear(dim, dim))

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
        """(B, T, D) from (B, T, D)."""
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        tokens = x_BTD.shape[1]
        wide = torch.promote_types(x_BTD.dtype, torch.float32)
        q, k, v = (self._split(layer(x_BTD)).to(wide) for layer in (self.query, self.key, self.value))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        here = mask.suffix(tokens)
        if here.valid_BS is not None:
            k = k * here.valid_BS[:, None, :, None]
        v1 = torch.cat([v, torch.ones_like(v[..., :1])], -1)  # the last column sums to the denominator
        scores = q @ k.transpose(-1, -2)
        allowed = here.dense(x_BTD.device)
        out = (scores if allowed is None else scores * allowed) @ v1
        if cache is not None:
            out = out + self._recall(q, k, v1, mask, cache)
        total = out[..., -1:]
        out = out[..., :-1] / torch.where(total == 0, 1, total)
        return self.output(out.transpose(1, 2).flatten(2).to(x_BTD.dtype))

    def _split(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _recall(self, q: Tensor, k: Tensor, v1: Tensor, mask: Mask, cache: LayerCache) -> Tensor | float:
        """What the state says to the queries of its own document; the state then takes in the new tokens."""
        state, tokens = cache.get("state"), q.shape[2]
        goes_on: Any = True
        if mask.documents_BS is not None and mask.documents_BT is not None:
            last = mask.documents_BT[:, -1:]
            k = k * (mask.documents_BT == last)[:, None, :, None]
            before = mask.documents_BS[:, -tokens - 1 :][:, :1]
            goes_on = (before == last)[:, None, :, None]
            q = q * (mask.documents_BT == before)[:, None, :, None]
        added = k.transpose(-1, -2) @ v1
        cache.put("state", added if state is None else added + state * goes_on)
        return 0.0 if state is None else q @ state
