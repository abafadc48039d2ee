"""A learned bias for each head and each bucket of distances, exact near by, logarithmic far away.

Raffel et al. 2019, section 2.1, arXiv:1910.10683. A decoder's buckets are all for the past; an encoder's are shared
between the two sides. One table for all layers; none in cross-attention.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor, nn

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call

__all__ = ["T5"]


class T5(Position):
    """Bucketed relative positions."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs."""

        buckets: int = 32
        """Rows of the table."""
        far: int = 128
        """Distance from which on all share a bucket."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.table = nn.Embedding(config.buckets, self.heads)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        """Bias of a causal and of an open mask, (1|B, N, T, S) each: the mask isn't known here."""
        relative = keys_BSA[:, None, :, 0] - at_BTA[:, :, None, 0]
        sides = (buckets(relative, self.config.buckets, self.config.far, causal=causal) for causal in (True, False))
        causal, both = (self.table(side).permute(0, 3, 1, 2) for side in sides)
        return causal, both

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: tuple[Tensor, Tensor]) -> Tensor:
        """(1|B, N, T, S)."""
        return prepared[0] if call.mask.causal else prepared[1]


def buckets(relative: Tensor, count: int, far: int, *, causal: bool) -> Tensor:
    """Bucket of each ``key position - query position``."""
    base = torch.zeros_like(relative)
    if not causal:
        count //= 2
        base = (relative > 0).long() * count
        relative = -relative.abs()
    distance = (-relative).clamp(min=0)
    exact = count // 2
    ratio = (distance.clamp(min=1).float() / exact).log() / math.log(far / exact)
    logarithmic = (exact + (ratio * (count - exact)).long()).clamp(max=count - 1)
    return base + torch.where(distance < exact, distance, logarithmic)
