"""Keys and values come from a small latent vector, which is all that the cache holds (multi-head latent attention).

    c = W_c x,  k_n = [U_n c ; R k_r],  v_n = W_n c,  q_n = [q_n' ; R q_n'']

DeepSeek-V2, section 2.1, arXiv:2405.04434. Rotation acts on a part of its own (decoupled), shared by all heads in
the keys; the cache holds c and k_r: rank + rotated numbers a token.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.call import Call
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.initialization import branch_output

__all__ = ["Latent"]


class Latent(Attention):
    """Scores see H + rotated elements; position schemes see the rotated ones only."""

    offers = frozenset(
        {"causal", "bidirectional", "cache", "padding", "documents", "window", "prefix", "rotate", "bias", "map"}
    )

    @dataclasses.dataclass(kw_only=True)
    class Config(Attention.Config):
        """Knobs."""

        rank: int = 6
        """Elements of the latent."""
        rotated: int = 4
        """Elements of the rotated part."""

    def __init__(self, config: Any, *, dim: int, heads: int, **parent: Any) -> None:
        super().__init__(config, dim=dim, heads=heads, **parent)
        if dim % heads:
            raise ValueError(f"width {dim} is not divisible by {heads} heads")
        self.size, self.score_size = dim // heads, config.rotated
        self.query = nn.Linear(dim, heads * (self.size + config.rotated))
        self.down = nn.Linear(dim, config.rank)
        self.rotated_key = nn.Linear(dim, config.rotated)
        self.up = nn.Linear(config.rank, 2 * dim)
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
        q, q_rotated = self._heads(self.query(x_BTD)).split([self.size, self.score_size], -1)
        latent, k_rotated = self.down(x_BTD), place.rotate(self.rotated_key(x_BTD)[:, None])
        if cache is not None:
            latent, k_rotated = cache.append("latent", latent, 1), cache.append("rotated", k_rotated, 2)
        k, v = self._heads(self.up(latent)).chunk(2, -1)
        call = Call(
            mask=mask,
            place=place,
            scale=(self.size + self.score_size) ** -0.5,
            x_BTD=x_BTD,
            cache=cache,
            notes=Notes() if notes is None else notes,
            layer=self.layer,
            kind="self",
            kernel="eager",
            dropout=self.dropout if self.training else 0.0,
            dtype=v.dtype,
        )
        q = torch.cat([q, place.rotate(q_rotated)], -1)
        k = torch.cat([k, k_rotated.expand(-1, self.heads, -1, -1)], -1)
        out = call.softmax(call.scores(q, k)) @ v
        if (empty_BT := mask.empty_BT(x_BTD.device)) is not None:
            out = out.masked_fill(empty_BT[:, None, :, None], 0.0)
        return self.output(out.transpose(1, 2).flatten(2))

    def _heads(self, x_BTX: Tensor) -> Tensor:
        return x_BTX.unflatten(-1, (self.heads, -1)).transpose(1, 2)
