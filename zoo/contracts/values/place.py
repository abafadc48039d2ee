"""Where tokens stand: a position scheme together with the positions of this forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from zoo.contracts.position import Position
    from zoo.contracts.values.call import Call


class Place:
    """A scheme, the positions of queries and keys, and what the scheme prepared of them.

    Made by the architecture, once a forward pass and scheme, outside the blocks: tables made lazily inside the
    first block would be saved and recomputed differently under activation checkpointing.

    Args:
        scheme: the position scheme, or ``None`` for none.
        at_BTA: (1|B, T, axes) int64 positions of the queries and of the new keys.
        keys_BSA: (1|B, S, axes) int64 positions of all keys.
        nowhere: whether some tokens stand nowhere (class tokens, registers): -1 on any axis. They are left
            alone by every scheme. Padding isn't one of these: its position is 0 and the mask hides it.
    """

    def __init__(
        self,
        scheme: Position | None,
        at_BTA: Tensor | None = None,
        keys_BSA: Tensor | None = None,
        *,
        nowhere: bool = False,
    ) -> None:
        self.scheme, self.at_BTA, self.keys_BSA, self.nowhere = scheme, at_BTA, keys_BSA, nowhere
        self._prepared: Any = None
        self._suffixes: dict[int, Place] = {}
        if scheme is None:
            return
        assert at_BTA is not None and keys_BSA is not None
        if at_BTA.shape[-1] != scheme.axes:
            raise ValueError(f"{type(scheme).__name__} takes positions with {scheme.axes} axes, got {at_BTA.shape[-1]}")
        self._prepared = scheme.prepare(self._somewhere(at_BTA), self._somewhere(keys_BSA))

    def _somewhere(self, positions: Tensor) -> Tensor:
        return positions.clamp(min=0) if self.nowhere else positions

    def embed(self, x_BTD: Tensor) -> Tensor:
        """Token embeddings with their positions."""
        if self.scheme is None or not self.scheme.acts("embed"):
            return x_BTD
        assert self.at_BTA is not None
        # What stands nowhere is 0 to a scheme that mixes tokens.
        seen_BTD = self._only_somewhere(x_BTD, torch.zeros_like(x_BTD), (..., None)) if self.scheme.mixes else x_BTD
        placed = self.scheme.embed(seen_BTD, self._somewhere(self.at_BTA))
        return self._only_somewhere(placed, x_BTD, (..., None))

    def rotate(self, q_BNTH: Tensor) -> Tensor:
        """Queries, turned by their positions."""
        if self.scheme is None or not self.scheme.acts("rotate"):
            return q_BNTH
        return self._turned(self.scheme.rotate(q_BNTH, self._prepared), q_BNTH)

    def rotate_keys(self, k_BNTH: Tensor) -> Tensor:
        """New keys, turned by their positions; most schemes turn them as they turn queries."""
        if self.scheme is None or not self.scheme.acts("rotate"):
            return k_BNTH
        return self._turned(self.scheme.rotate_keys(k_BNTH, self._prepared), k_BNTH)

    def _turned(self, turned: Tensor, as_is: Tensor) -> Tensor:
        return self._only_somewhere(turned, as_is, (slice(None), None, slice(None), None))

    def has_bias(self) -> bool:
        """Whether anything is added to the scores."""
        return self.scheme is not None and self.scheme.acts("bias")

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call) -> Tensor | None:
        """What is added to the scores after the scale, broadcastable to (B, N, T, S), or ``None``."""
        if self.scheme is None or not self.has_bias():
            return None
        bias = self.scheme.bias(q_BNTH, k_BNSH, call, self._prepared)
        if bias is None or not self.nowhere:
            return bias
        assert self.at_BTA is not None and self.keys_BSA is not None
        stands_T = (self.at_BTA >= 0).all(-1)[:, None, :, None]
        stands_S = (self.keys_BSA >= 0).all(-1)[:, None, None, :]
        return torch.where(stands_T & stands_S, bias, bias.new_zeros(()))

    def _only_somewhere(self, placed: Tensor, as_is: Tensor, view: tuple[Any, ...]) -> Tensor:
        if not self.nowhere:
            return placed
        assert self.at_BTA is not None
        return torch.where((self.at_BTA >= 0).all(-1)[view], placed, as_is)

    def suffix(self, keys: int) -> Place:
        """The same place for the last S keys, what a rolling cache has kept."""
        if self.keys_BSA is None or keys == self.keys_BSA.shape[1]:
            return self
        if keys not in self._suffixes:
            self._suffixes[keys] = Place(self.scheme, self.at_BTA, self.keys_BSA[:, -keys:], nowhere=self.nowhere)
        return self._suffixes[keys]


NOWHERE = Place(None)
"""No positions at all: cross-attention, or an attention by itself."""
