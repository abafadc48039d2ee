"""Keys and values are projected along the sequence to a fixed number of slots: cost T k instead of T^2.

    out = softmax(q (E k)^T / sqrt(H)) (F v),  E, F: rank x length

Wang et al. 2020, arXiv:2006.04768. Every key is mixed into every slot, so there is no causal form and no cache.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.mask import Mask, positions_of
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.initialization import branch_output

__all__ = ["Linformer"]


class Linformer(Attention):
    """Bidirectional only."""

    offers = frozenset({"bidirectional", "padding"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Attention.Config):
        """Knobs."""

        rank: int = 3
        """Slots that the keys are projected to."""
        length: int = 64
        """Longest sequence."""

    def __init__(self, config: Any, *, dim: int, heads: int, **parent: Any) -> None:
        super().__init__(config, dim=dim, heads=heads, **parent)
        if dim % heads:
            raise ValueError(f"width {dim} is not divisible by {heads} heads")
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.keys_down, self.values_down = (nn.Embedding(config.length, config.rank) for _ in range(2))
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
        """(B, T, D) from (B, T, D).

        Raises:
            ValueError: a sequence past the configured length.
        """
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        if x_BTD.shape[1] > self.config.length:
            raise ValueError(f"{x_BTD.shape[1]} tokens, linformer was made for {self.config.length}")
        q, k, v = (
            layer(x_BTD).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        if mask.valid_BS is None:
            at = torch.arange(x_BTD.shape[1], device=x_BTD.device)[None]
        else:
            at, valid = positions_of(mask.valid_BS, None), mask.valid_BS[:, None, :, None]
            k, v = k * valid, v * valid
        k = self.keys_down(at).transpose(1, 2)[:, None] @ k
        v = self.values_down(at).transpose(1, 2)[:, None] @ v
        weights = (q @ k.transpose(-1, -2) * self.score_size**-0.5).softmax(-1)
        return self.output((weights @ v).transpose(1, 2).flatten(2))
