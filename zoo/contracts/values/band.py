"""Queries in blocks, each with the keys that it may reach: linear in T where T x S is quadratic.

Dimension legend: B batch, T queries, S keys, L blocks, Q queries of a block, K keys of a block.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Band:
    """How a window cuts queries and keys, without copies. What is filled up the mask of the blocks hides.

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


@dataclasses.dataclass(frozen=True, eq=False)
class Blocks:
    """Queries and keys gathered in any blocks; each key once in a block, each query in one block or in none.

    Attributes:
        query_LQ: numbers of queries; T where there is none.
        key_LK: numbers of keys; S where there is none.
        queries, keys: T and S.
    """

    query_LQ: Tensor
    key_LK: Tensor
    queries: int
    keys: int

    @staticmethod
    def of(query_LQ: Tensor, key_LK: Tensor, queries: int, keys: int) -> Blocks:
        """Blocks of numbers of which some don't exist and some are repeated."""
        key_LK = torch.where((key_LK >= 0) & (key_LK < keys), key_LK, keys).sort(1).values
        again_LK = F.pad(key_LK[:, 1:] == key_LK[:, :-1], (1, 0))
        query_LQ = torch.where((query_LQ >= 0) & (query_LQ < queries), query_LQ, queries)
        return Blocks(query_LQ, torch.where(again_LK, keys, key_LK), queries, keys)

    @property
    def count(self) -> int:
        """Number L of blocks."""
        return self.query_LQ.shape[0]

    @property
    def pairs(self) -> int:
        """Scores that are computed: L x Q x K."""
        return self.query_LQ.numel() * self.key_LK.shape[1]

    def of_queries(self, x_BT: Tensor, fill: float) -> Tensor:
        """(B, L, Q, ...) from (B, T, ...)."""
        return _taken(x_BT, self.query_LQ, fill)

    def of_keys(self, x_BS: Tensor, fill: float) -> Tensor:
        """(B, L, K, ...) from (B, S, ...)."""
        return _taken(x_BS, self.key_LK, fill)

    def merged(self, x_BLX: Tensor) -> Tensor:
        """(B, T, ...) from blocks of queries (B, L, Q, ...); 0 or False for a query in no block."""
        index_L = self.query_LQ.flatten()
        number_L = torch.arange(index_L.numel(), device=index_L.device)
        nowhere = index_L.new_full((self.queries + 1,), index_L.numel())
        number_T = nowhere.scatter(0, index_L, number_L)[: self.queries]
        return taken(_filled(x_BLX.flatten(1, 2), 0, 1, 0), number_T)


def _taken(x_BT: Tensor, index_LQ: Tensor, fill: float) -> Tensor:
    there_LQ = index_LQ < x_BT.shape[1]
    out = taken(x_BT, torch.where(there_LQ, index_LQ, 0))
    return out if out.is_floating_point() else torch.where(there_LQ, out, fill)  # the mask hides what stands there


def taken(x_BTX: Tensor, index: Tensor) -> Tensor:
    """(B, *index, ...) the entries of (B, T, ...) by their numbers; the fastest way back is an embedding's."""
    if not x_BTX.is_floating_point():
        return x_BTX[:, index]
    row_B = torch.arange(x_BTX.shape[0], device=index.device) * x_BTX.shape[1]
    rows = F.embedding(index + row_B[(..., *[None] * index.ndim)], x_BTX.flatten(0, 1).flatten(1))
    return rows.unflatten(-1, x_BTX.shape[2:])
