"""Which tokens may attend to which by their places alone: strides, blocks, global tokens. Outsiders may add theirs.

Dimension legend: L blocks, Q queries of a block, K keys of a block.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor


class Pattern(ABC):
    """A rule over pairs of places, which narrows a mask (``mask.narrow(pattern=...)``).

    A place is a token's number in its document, counted from the first slot there that isn't padding; without
    padding and documents it is the slot. A token before that one has no place, and sees and is seen by nothing.
    Derive a frozen dataclass, so that layers with equal patterns share what is made of them.
    """

    anchored: ClassVar[bool] = True
    """Whether it matters where a document begins; False if only differences of places count."""

    @abstractmethod
    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """Bool, elementwise over places of queries and of keys that broadcast: the law for all that follows.

        Compare rather than subtract: the answer for a pair is a byte, a number for it would be eight.
        """

    def blocks(
        self, begin: int, end: int, *, keys: int, ahead: bool, device: torch.device
    ) -> tuple[Tensor, Tensor] | None:
        """(L, Q) places of queries and (L, K) places of the keys that these may need, or ``None``: any may need any.

        Each query from ``begin`` to ``end`` is in one block, or in none if nothing is allowed to it. Places that
        don't exist may be listed too, and keys repeatedly. The first ``seeing_all`` queries need not find theirs.

        Args:
            begin: place of the first query.
            end: place behind the last query.
            keys: place behind the last key.
            ahead: whether a query may see keys behind its own.
            device: where the tensors belong.
        """
        del begin, end, keys, ahead, device
        return None

    def seeing_all(self) -> int:
        """How many of the first queries see every key; they are computed beside the blocks."""
        return 0

    def keep(self) -> int | None:
        """Keys that a causal query needs, its own included, counted back from it; ``None`` means all."""
        return None


@dataclasses.dataclass(frozen=True)
class Both(Pattern):
    """What two patterns both allow."""

    one: Pattern
    other: Pattern

    @property
    def anchored(self) -> bool:  # type: ignore[override]  # of the pair, not of the class
        """Whether one of them is."""
        return self.one.anchored or self.other.anchored

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """Both do."""
        return self.one.allows(query, key) & self.other.allows(query, key)

    def blocks(
        self, begin: int, end: int, *, keys: int, ahead: bool, device: torch.device
    ) -> tuple[Tensor, Tensor] | None:
        """Those of the first that has any: fewer pairs are allowed, but none elsewhere."""
        blocks = self.one.blocks(begin, end, keys=keys, ahead=ahead, device=device)
        return blocks or self.other.blocks(begin, end, keys=keys, ahead=ahead, device=device)

    def seeing_all(self) -> int:
        """All that blocks of either would leave out."""
        return max(self.one.seeing_all(), self.other.seeing_all())

    def keep(self) -> int | None:
        """The fewer keys."""
        return min((keys for keys in (self.one.keep(), self.other.keep()) if keys is not None), default=None)


def aligned(begin: int, end: int, size: int, device: torch.device) -> Tensor:
    """(L, Q) places in blocks of ``size`` that begin at multiples of it and hold all from ``begin`` to ``end``."""
    first_L = torch.arange(begin // size * size, end, size, device=device)
    return first_L[:, None] + torch.arange(size, device=device)


def around(query_LQ: Tensor, behind: int, ahead: int, step: int = 1) -> Tensor:
    """(L, K) every ``step``-th place from ``behind`` of them before a block of such places to ``ahead`` after it."""
    steps_K = torch.arange(-behind, query_LQ.shape[1] + ahead, device=query_LQ.device)
    return query_LQ[:, :1] + step * steps_K


def beside(key_LK: Tensor, more: Tensor) -> Tensor:
    """(L, K + M) the keys of each block and (M,) or (L, M) more."""
    return torch.cat([key_LK, more.expand(key_LK.shape[0], -1)], 1)
