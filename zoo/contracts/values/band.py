"""Queries in blocks, each with the keys that a window lets it reach: linear in T where T x S is quadratic.

Dimension legend: B batch, T queries, S keys, L blocks.
"""

from __future__ import annotations

import dataclasses

import torch.nn.functional as F
from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Band:
    """How queries and keys are cut. What is filled up at the ends the mask of the blocks hides.

    Attributes:
        size: queries in a block; the last block is filled up.
        behind: keys that a block reaches before its first query.
        ahead: keys that it reaches after its last query.
        offset: index of the key at the first query's slot.
        queries, keys: T and S.
    """

    size: int
    behind: int
    ahead: int
    offset: int
    queries: int
    keys: int

    @property
    def count(self) -> int:
        """Number L of blocks."""
        return -(-self.queries // self.size)

    @property
    def width(self) -> int:
        """Keys of a block, the same number for each."""
        return self.behind + self.size + self.ahead

    def of_queries(self, x_BT: Tensor, fill: float) -> Tensor:
        """(B, L, size, ...) blocks of queries from (B, T, ...)."""
        return _filled(x_BT, 0, self.count * self.size - self.queries, fill).unflatten(1, (self.count, self.size))

    def of_keys(self, x_BS: Tensor, fill: float) -> Tensor:
        """(B, L, width, ...) the keys that each block reaches from (B, S, ...), a view: neighbours share keys."""
        behind = self.behind - self.offset
        ahead = self.count * self.size + self.ahead + self.offset - self.keys
        return _filled(x_BS, behind, ahead, fill).unfold(1, self.width, self.size).movedim(-1, 2)

    def merged(self, x_BLX: Tensor) -> Tensor:
        """(B, T, ...) from blocks of queries (B, L, size, ...)."""
        return x_BLX.flatten(1, 2)[:, : self.queries]


def _filled(x_BS: Tensor, before: int, after: int, fill: float) -> Tensor:
    """More entries of axis 1 on both sides, or fewer where a number is negative."""
    return F.pad(x_BS, (0, 0) * (x_BS.ndim - 2) + (before, after), value=fill)
