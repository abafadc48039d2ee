"""A learned bias for each head and each bucket of distances: exact near by, logarithmic farther, one for all beyond.

With E exact buckets of n for one side, a key at distance d lies in

    d < E:  bucket d            else:  bucket min(n - 1, E + floor((n - E) log(d / E) / log(max_distance / E)))

Acts on scores. Where queries see both sides each side has half of the buckets, the later keys the second half; in a
causal model all are for the past. One table serves all layers, and cross-attention has no bias.
Raffel et al. 2020, "Exploring the limits of transfer learning" (T5), section 2.1, arXiv:1910.10683. T5 divides by
no sqrt(H): give its attention ``scale: 1.0``.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call

__all__ = ["RelativeBuckets"]


@final
class RelativeBuckets(Position):
    """A table with a row for each bucket and a column for each head."""

    relative = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the buckets."""

        buckets: int = 32
        """Rows of the table, for both sides together where queries see both."""
        max_distance: int = 128
        """Distance from which on all keys share the last bucket."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.sides = 1 if self.causal else 2
        if config.buckets < 2 * self.sides or config.buckets % self.sides:
            raise ValueError(f"{config.buckets} buckets can't be dealt out to {self.sides} sides, at least 2 to each")
        self.exact = config.buckets // self.sides // 2
        if config.max_distance <= self.exact:
            raise ValueError(
                f"max_distance must be above {self.exact}, the distances that have their own of {config.buckets} "
                f"buckets, got {config.max_distance}"
            )
        self.table = nn.Embedding(config.buckets, self.heads)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, N, T, S) the bias."""
        ahead_BTS = keys_BSA[:, None, :, 0] - at_BTA[:, :, None, 0]
        return self.table(self.buckets(ahead_BTS)).permute(0, 3, 1, 2)

    def buckets(self, ahead: Tensor) -> Tensor:
        """The bucket of each number of positions by which a key is ahead of its query, int64 in, int64 out."""
        each = self.config.buckets // self.sides
        distance = (-ahead).clamp(min=0) if self.causal else ahead.abs()
        # In float32 and in this order, as published models had it: at a bound, a rounding decides.
        ratio = torch.log(distance.clamp(min=1).to(torch.float32) / self.exact)
        farther = (ratio / math.log(self.config.max_distance / self.exact) * (each - self.exact)).long()
        bucket = torch.where(distance < self.exact, distance, (self.exact + farther).clamp(max=each - 1))
        return bucket if self.causal else bucket + each * (ahead > 0)

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        """(1|B, N, T, S), the same for all queries and keys."""
        del q_BNTH, k_BNSH, call
        return prepared
