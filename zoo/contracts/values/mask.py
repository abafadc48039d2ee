"""Who may attend to whom, as structure: a kernel gets the rendering that it wants, never a bare tensor.

``True`` means "may attend", everywhere. Every part narrows (they are ANDed); only ``prefix`` relaxes ``causal``.
All of it speaks of slots, the places of tokens in the sequence (and in a cache), not of positions.

Dimension legend: B batch, T query slots, S key slots.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.contracts.values.band import Band


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Mask:
    """Parts of a mask. The first five are the caller's; the sizes are filled in by ``sized`` or by a cache."""

    causal: bool = False
    """A query attends to keys at its own slot and before."""
    window: int | None = None
    """A query attends to keys fewer than this many slots away, its own included, on either side."""
    prefix_B: Tensor | None = None
    """(B,) int64: this many first slots may be attended by everybody, though the mask is causal."""
    valid_BS: Tensor | None = None
    """(B, S) bool: False is padding, attended by nobody."""
    documents_BS: Tensor | None = None
    """(B, S) int64 document of each key; attention stays inside a document."""
    documents_BT: Tensor | None = None
    """(B, T) int64 document of each query; filled in from ``documents_BS`` in self-attention."""
    start: int = 0
    """Slot of the first query."""
    first: int = 0
    """Slot of the first key; above 0 where a rolling cache has dropped older ones."""
    queries: int = 0
    """T."""
    keys: int = 0
    """S."""
    _memo: dict[Any, Any] = dataclasses.field(default_factory=dict, repr=False)
    # Renderings are shared by all layers. Boolean and integer tensors only, so that recomputing a
    # checkpointed block saves the same tensors for its backward pass.

    def __post_init__(self) -> None:
        for name, tensor, kind in (
            ("valid_BS", self.valid_BS, torch.bool),
            ("documents_BS", self.documents_BS, torch.int64),
            ("documents_BT", self.documents_BT, torch.int64),
        ):
            if tensor is not None and (tensor.ndim != 2 or tensor.dtype != kind):
                raise ValueError(
                    f"{name} must be two-dimensional (batch, slots) {kind}, got shape "
                    f"{tuple(tensor.shape)} {tensor.dtype}"
                )
        if self.prefix_B is not None and self.prefix_B.ndim != 1:
            raise ValueError(f"prefix_B must be one-dimensional (batch,), got {tuple(self.prefix_B.shape)}")
        if self.window is not None and self.window < 1:
            raise ValueError(f"window must be at least 1, got {self.window}")

    def sized(self, queries: int, keys: int, *, start: int = 0, first: int = 0) -> Mask:
        """The same mask over T queries from slot ``start`` and S keys from slot ``first``.

        Raises:
            ValueError: padding or documents whose length isn't S.
        """
        for name, tensor in (("valid_BS", self.valid_BS), ("documents_BS", self.documents_BS)):
            if tensor is not None and tensor.shape[1] != keys:
                raise ValueError(f"{name} covers {tensor.shape[1]} slots, the keys are {keys}")
        documents_BT = self.documents_BT
        if documents_BT is None and self.documents_BS is not None:
            offset = start - first
            documents_BT = self.documents_BS[:, offset : offset + queries]
        return self._with(queries=queries, keys=keys, start=start, first=first, documents_BT=documents_BT)

    def _with(self, **changes: Any) -> Mask:
        return dataclasses.replace(self, **changes, _memo={})

    def narrow(self, *, window: int) -> Mask:
        """This mask with a window, the smaller one if it has a window already; made once for all layers."""
        window = window if self.window is None else min(window, self.window)
        key = ("window", window)
        if key not in self._memo:
            self._memo[key] = self._with(window=window)
        return self._memo[key]

    def crop(self, q0: int, q1: int, k0: int, k1: int) -> Mask:
        """The block of queries ``q0:q1`` and keys ``k0:k1``, counted from this mask's first query and key."""
        return self._with(
            start=self.start + q0,
            queries=q1 - q0,
            first=self.first + k0,
            keys=k1 - k0,
            valid_BS=None if self.valid_BS is None else self.valid_BS[:, k0:k1],
            documents_BS=None if self.documents_BS is None else self.documents_BS[:, k0:k1],
            documents_BT=None if self.documents_BT is None else self.documents_BT[:, q0:q1],
        )

    def suffix(self, keys: int) -> Mask:
        """The last S keys, what a rolling cache has kept."""
        if keys == self.keys:
            return self
        key = ("suffix", keys)
        if key not in self._memo:
            self._memo[key] = self.crop(0, self.queries, self.keys - keys, self.keys)
        return self._memo[key]

    def parts(self) -> frozenset[str]:
        """The words of ``zoo.contracts.values.capabilities`` that an attention must offer to honour this mask."""
        if "parts" not in self._memo:
            present = {
                "causal": self.causal,
                "bidirectional": not self.causal,
                "window": self.window is not None,
                "prefix": self.prefix_B is not None,
                "padding": self.valid_BS is not None,
                "documents": self.documents_BS is not None,
            }
            self._memo["parts"] = frozenset(word for word, there in present.items() if there)
        return self._memo["parts"]

    def hides_future(self) -> bool:
        """Whether ``causal`` hides any key here: not from a single query at the last slot."""
        return self.causal and self.start < self.first + self.keys - 1

    def valid_BT(self) -> Tensor | None:
        """(B, T) bool: which queries are tokens, in self-attention."""
        if self.valid_BS is None:
            return None
        offset = self.start - self.first
        return self.valid_BS[:, offset : offset + self.queries]

    def dense(self, device: torch.device) -> Tensor | None:
        """(1|B, 1, T, S) bool, True = may attend; ``None`` where nothing is hidden."""
        key = ("dense", device)
        if key not in self._memo:
            self._memo[key] = self._dense(device)
        return self._memo[key]

    def _dense(self, device: torch.device) -> Tensor | None:
        allowed: list[Tensor] = []
        query_T1 = torch.arange(self.start, self.start + self.queries, device=device)[:, None]
        key_S = torch.arange(self.first, self.first + self.keys, device=device)
        if self.hides_future():
            past = (key_S <= query_T1)[None, None]
            if self.prefix_B is not None:
                past = past | (key_S < self.prefix_B[:, None])[:, None, None, :]
            allowed.append(past)
        if self.window is not None and self._reach() >= self.window:
            allowed.append(((key_S - query_T1).abs() < self.window)[None, None])
        if self.valid_BS is not None:
            allowed.append(self.valid_BS[:, None, None, :])
        if self.documents_BS is not None and self.documents_BT is not None:
            allowed.append((self.documents_BT[:, :, None] == self.documents_BS[:, None, :])[:, None])
        if not allowed:
            return None
        result = allowed[0]
        for part in allowed[1:]:
            result = result & part
        return result.expand(-1, -1, self.queries, self.keys)

    def _reach(self) -> int:
        """Greatest distance between a query and a key."""
        last_query, last_key = self.start + self.queries - 1, self.first + self.keys - 1
        return max(last_query - self.first, last_key - self.start)

    def band(self) -> Band | None:
        """How a windowed mask is cut into blocks; ``None`` where one block or all keys for each is all there is."""
        if self.window is None or not self._have_own_keys():
            return None
        band = Band(
            size=(self.window + 1) // 2,  # smaller blocks copy more keys, larger ones compute more hidden scores
            behind=self.window - 1,
            ahead=0 if self.causal and self.prefix_B is None else self.window - 1,
            offset=self.start - self.first,
            queries=self.queries,
            keys=self.keys,
        )
        return band if band.count > 1 and band.width < self.keys else None

    def blocks(self, device: torch.device) -> Tensor:
        """(1|B, L, size, width) bool, what ``dense`` says of the L blocks of ``band``, without its T x S.

        Keys before the first and behind the last are hidden; queries behind the last attend to nothing.
        """
        key = ("blocks", device)
        if key not in self._memo:
            self._memo[key] = self._blocks(device)
        return self._memo[key]

    def _blocks(self, device: torch.device) -> Tensor:
        band = self.band()
        assert band is not None and self.window is not None
        slots_1S = torch.arange(self.first, self.first + self.keys, device=device)[None]
        slots_1T = torch.arange(self.start, self.start + self.queries, device=device)[None]
        query, key = band.of_queries(slots_1T, -1)[..., None], band.of_keys(slots_1S, -1)[:, :, None]
        allowed = (query >= 0) & (key >= 0) & ((key - query).abs() < self.window)
        if self.causal:
            past = key <= query
            allowed = allowed & (past if self.prefix_B is None else past | (key < self.prefix_B[:, None, None, None]))
        if self.valid_BS is not None:
            allowed = allowed & band.of_keys(self.valid_BS, False)[:, :, None]
        if self.documents_BS is not None and self.documents_BT is not None:
            of_query, of_key = band.of_queries(self.documents_BT, 0), band.of_keys(self.documents_BS, 0)
            allowed = allowed & (of_query[..., None] == of_key[:, :, None])
        return allowed

    def empty_BT(self, device: torch.device) -> Tensor | None:
        """(1|B, T) bool: queries that may attend to nothing, whose output is 0; ``None`` if none can be."""
        if self.valid_BS is None and self.documents_BS is None and (self.window is None or self._have_own_keys()):
            return None  # a causal query has its own slot, a bidirectional one has all
        key = ("empty", device)
        if key not in self._memo:
            self._memo[key] = self._empty_BT(device)
        return self._memo[key]

    def _empty_BT(self, device: torch.device) -> Tensor | None:
        if (band := self.band()) is not None:
            return ~band.merged(self.blocks(device).any(-1))
        allowed = self.dense(device)
        return None if allowed is None else ~allowed.any(-1)[:, 0]

    def _have_own_keys(self) -> bool:
        """Whether each query's own slot is among the keys."""
        return self.first <= self.start and self.start + self.queries <= self.first + self.keys

    def sdpa(self, device: torch.device) -> tuple[Tensor | None, bool]:
        """``(attn_mask, is_causal)`` for ``scaled_dot_product_attention``.

        ``is_causal`` aligns the triangle to the top left corner, so it is used only where queries and keys are
        the same slots. Rows that may attend to nothing are opened, which keeps kernels from dividing by zero;
        the attention sets their output to 0.
        """
        others = self.parts() - {"causal", "bidirectional"}
        if not others and self.start == self.first and self.queries == self.keys:
            return None, self.causal and self.queries > 1
        key = ("sdpa", device)
        if key not in self._memo:
            allowed, empty = self.dense(device), self.empty_BT(device)
            if allowed is not None and empty is not None:
                allowed = allowed | empty[:, None, :, None]
            self._memo[key] = allowed
        return self._memo[key], False

    def sdpa_blocks(self, device: torch.device) -> Tensor:
        """``blocks`` for ``scaled_dot_product_attention``: rows that may attend to nothing are opened, as there."""
        key = ("sdpa blocks", device)
        if key not in self._memo:
            allowed = self.blocks(device)
            self._memo[key] = allowed | ~allowed.any(-1, keepdim=True)
        return self._memo[key]


def positions_of(valid_BS: Tensor | None, documents_BS: Tensor | None) -> Tensor:
    """(B, S) int64 positions of tokens: they count valid tokens, from 0 in each document; padding has 0.

    ``valid`` [0, 0, 1, 1, 1] gives [0, 0, 0, 1, 2]; documents [7, 7, 9] give [0, 1, 0].
    """
    given = valid_BS if valid_BS is not None else documents_BS
    if given is None:
        raise ValueError("positions_of needs padding or documents")
    counted = torch.ones_like(given, dtype=torch.int64) if valid_BS is None else valid_BS.long()
    before = counted.cumsum(1) - counted
    if documents_BS is not None:
        opens = torch.ones_like(documents_BS, dtype=torch.bool)
        opens[:, 1:] = documents_BS[:, 1:] != documents_BS[:, :-1]
        before = before - torch.where(opens, before, 0).cummax(1).values
    return torch.where(counted.bool(), before, 0)


def mask_of(batch: Mapping[str, Tensor], *, causal: bool) -> Mask | None:
    """The mask that a batch's ``documents`` and ``valid`` ask for; ``None`` where it has neither."""
    documents, valid = batch.get("documents"), batch.get("valid")
    if documents is None and valid is None:
        return None
    return Mask(causal=causal, documents_BS=documents, valid_BS=valid)


CAUSAL = Mask(causal=True)
"""A decoder's mask: no look-ahead, no padding."""

EVERYTHING = Mask()
"""An encoder's mask: every position attends to every other."""
