"""No mixing at all: each token keeps to itself. The control that every mixer must beat. No parameters.

    out = x

In a block it adds the normalized token to the stream, and the feed-forward layers do the rest. A causal model of such
blocks predicts the next token from the last one alone, and from where it stands.
Yu et al. 2024, "MetaFormer baselines for vision", section 3.1 (IdentityFormer), arXiv:2210.13452. Cost: none.
"""

from __future__ import annotations

from typing import final

from torch import Tensor

from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place

__all__ = ["Identity"]


@final
class Identity(Attention):
    """Honours every mask, as it attends to nothing but the token itself."""

    offers = frozenset({"causal", "bidirectional", "cache", "padding", "documents", "window", "prefix"})
    mixes = False

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
        """(B, T, D) from (B, T, D), 0 for padding."""
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        valid_BT = mask.valid_BT()
        return x_BTD.clone() if valid_BT is None else x_BTD.masked_fill(~valid_BT[..., None], 0.0)
