"""Who may attend to whom, as structure: a kernel gets the rendering that it wants, never a bare tensor.

``True`` means "may attend", everywhere. Every part narrows (they are ANDed); only ``prefix`` relaxes ``causal``.
All of it speaks of slots, the places of tokens in the sequence (and in a cache), not of positions.

Dimension legend: B batch, T query slots, S key slots, L blocks, Q queries of a block, K keys of a block.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.contracts.values.band import Band, Blocks
from zoo.contracts.values.flex import block_mask
from zoo.contracts.values.packing import Packing, places_of
from zoo.contracts.values.pattern import Both, Pattern


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Mask:
    """Parts of a mask. The first six are the caller's; the sizes are filled in by ``sized`` or by a cache."""

    causal: bool = False
    """A query attends to keys at its own slot and before."""
    window: int | None = None
    """A query attends to keys fewer than this many slots away, its own included, on either side."""
    pattern: Pattern | None = None
    """A query attends to keys that a rule over places allows."""
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
    one_document: bool = False
    """Whether slots are places, though there may be padding: it is only behind the tokens."""
    _whole: tuple[Mask, int, int] | None = dataclasses.field(default=None, repr=False)
    # What this is a block of, and where: a block doesn't know where the documents that it cuts begin.
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
        return self.changed(
            queries=queries, keys=keys, start=start, first=first, documents_BT=documents_BT, _whole=None
        )

    def changed(self, **changes: Any) -> Mask:
        """This mask with other fields, its renderings not made yet."""
        return dataclasses.replace(self, **changes, _memo={})

    def narrow(self, *, window: int | None = None, pattern: Pattern | None = None) -> Mask:
        """This mask with a window and a pattern, beside those that it has already; made once for all layers."""
        if self.window is not None:
            window = self.window if window is None else min(window, self.window)
        if pattern is None or pattern == self.pattern:
            pattern = self.pattern
        elif self.pattern is not None:
            pattern = Both(pattern, self.pattern)
        return self._once(("narrow", window, pattern), lambda: self.changed(window=window, pattern=pattern))

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def crop(self, q0: int, q1: int, k0: int, k1: int) -> Mask:
        """The block of queries ``q0:q1`` and keys ``k0:k1``, counted from this mask's first query and key."""
        return self.changed(
            start=self.start + q0,
            queries=q1 - q0,
            first=self.first + k0,
            keys=k1 - k0,
            valid_BS=None if self.valid_BS is None else self.valid_BS[:, k0:k1],
            documents_BS=None if self.documents_BS is None else self.documents_BS[:, k0:k1],
            documents_BT=None if self.documents_BT is None else self.documents_BT[:, q0:q1],
            _whole=(self, q0, k0),
        )

    def suffix(self, keys: int) -> Mask:
        """The last S keys, what a rolling cache has kept."""
        if keys == self.keys:
            return self
        return self._once(("suffix", keys), lambda: self.crop(0, self.queries, self.keys - keys, self.keys))

    def parts(self) -> frozenset[str]:
        """The words of ``zoo.contracts.values.capabilities`` that an attention must offer to honour this mask."""
        if "parts" not in self._memo:
            present = {
                "causal": self.causal,
                "bidirectional": not self.causal,
                "window": self.window is not None or self.pattern is not None,
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

    def places(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """(1|B, T) and (1|B, S) int64 places of queries and keys, see ``Pattern``; -1 for none.

        Raises:
            ValueError: padding or documents, and queries that aren't among the keys.
        """
        return self._once(("places", device), lambda: self._places(device))

    def _places(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if self.one_document or (self.valid_BS is None and self.documents_BS is None):
            query_1T = torch.arange(self.start, self.start + self.queries, device=device)[None]
            return query_1T, torch.arange(self.first, self.first + self.keys, device=device)[None]
        if self._whole is not None:
            whole, q0, k0 = self._whole
            query_BT, key_BS = whole.places(device)
            return query_BT[:, q0 : q0 + self.queries], key_BS[:, k0 : k0 + self.keys]
        if not self._have_own_keys():
            raise ValueError("in padding or documents a pattern needs the queries among the keys, to find their places")
        key_BS, offset = places_of(self.valid_BS, self.documents_BS), self.start - self.first
        return key_BS[:, offset : offset + self.queries], key_BS

    def _places_are_slots(self) -> bool:
        return self.one_document or (self.valid_BS is None and self.documents_BS is None)

    def dense(self, device: torch.device) -> Tensor | None:
        """(1|B, 1, T, S) bool, True = may attend; ``None`` where nothing is hidden."""
        return self._once(("dense", device), lambda: self._dense(device))

    def _dense(self, device: torch.device) -> Tensor | None:
        allowed = self.pairs(
            device, lambda x_BT, _: x_BT[:, :, None], lambda x_BS, _: x_BS[:, None], lambda x_B: x_B[:, None, None]
        )
        if not allowed:
            return None
        return _all(allowed)[:, None].expand(-1, -1, self.queries, self.keys)

    def pairs(
        self,
        device: torch.device,
        query: Callable[[Tensor, float], Tensor],
        key: Callable[[Tensor, float], Tensor],
        row: Callable[[Tensor], Tensor],
    ) -> list[Tensor]:
        """What each part allows, over pairs that three functions lay out from (1|B, T), (1|B, S) and (B,)."""
        query_1T = torch.arange(self.start, self.start + self.queries, device=device)[None]
        key_1S = torch.arange(self.first, self.first + self.keys, device=device)[None]
        allowed: list[Tensor] = []
        if self.hides_future():
            past = key(key_1S, -1) <= query(query_1T, -1)
            if self.prefix_B is not None:
                past = past | (key(key_1S, -1) < row(self.prefix_B))
            allowed.append(past)
        if self.window is not None and self._reach() >= self.window:
            t, s = query(query_1T, -1), key(key_1S, -1)  # compared, not subtracted: a byte a pair, not eight
            allowed.append((s > t - self.window) & (s < t + self.window))
        if self.pattern is not None:
            slots = not self.pattern.anchored or self._places_are_slots()
            query_BT, key_BS = (query_1T, key_1S) if slots else self.places(device)
            allowed.append(self.pattern.allows(query(query_BT, -1), key(key_BS, -1)))
            if not slots:
                allowed.append(query(query_BT >= 0, False))
        if self.valid_BS is not None:
            allowed.append(key(self.valid_BS, False))
        if self.documents_BS is not None and self.documents_BT is not None:
            allowed.append(query(self.documents_BT, 0) == key(self.documents_BS, 0))
        return allowed

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

    def cut(self, device: torch.device) -> Band | Blocks | None:
        """The pattern's blocks, or the window's band; ``None`` where either would compute as many scores as all."""
        return self._once(("cut", device), lambda: self._cut(device))

    def _cut(self, device: torch.device) -> Band | Blocks | None:
        if self.pattern is None or (self.pattern.anchored and not self._places_are_slots()):
            return self.band()
        ahead = not self.causal or self.prefix_B is not None
        end, keys = self.start + self.queries, self.first + self.keys
        found = self.pattern.blocks(self.start, end, keys=keys, ahead=ahead, device=device)
        if found is None:
            return self.band()
        blocks = Blocks.of(found[0] - self.start, found[1] - self.first, self.queries, self.keys)
        scores = blocks.pairs + self._seeing_all() * self.keys
        return blocks if scores < self.queries * self.keys else self.band()

    def _seeing_all(self) -> int:
        """Queries, the first ones, that see every key by their pattern."""
        return 0 if self.pattern is None else min(max(0, self.pattern.seeing_all() - self.start), self.queries)

    def head(self, device: torch.device) -> Mask | None:
        """The first queries, where blocks leave them out because their pattern lets them see every key."""
        rows = self._seeing_all()
        if not rows or not isinstance(self.cut(device), Blocks):
            return None
        return self._once("head", lambda: self.crop(0, rows, 0, self.keys))

    def blocks(self, device: torch.device) -> Tensor:
        """(1|B, L, Q, K) bool, what ``dense`` says of the L blocks of ``cut``, without its T x S.

        Keys before the first and behind the last are hidden; queries behind the last attend to nothing.
        """
        return self._once(("blocks", device), lambda: self._blocks(device))

    def _blocks(self, device: torch.device) -> Tensor:
        cut = self.cut(device)
        assert cut is not None

        def query(x_BT: Tensor, fill: float) -> Tensor:
            return cut.of_queries(x_BT, fill)[..., None]

        def key(x_BS: Tensor, fill: float) -> Tensor:
            return cut.of_keys(x_BS, fill)[:, :, None]

        here = [
            side(torch.ones(1, count, dtype=torch.bool, device=device), False)
            for side, count in ((query, self.queries), (key, self.keys))
        ]
        return _all([*here, *self.pairs(device, query, key, lambda x_B: x_B[:, None, None, None])])

    def packing(self, device: torch.device) -> Packing | None:
        """Documents as rows of their own, where that saves scores, or lets a pattern be cut into blocks."""
        return self._once(("packing", device), lambda: Packing.of(self, device))

    def empty_BT(self, device: torch.device) -> Tensor | None:
        """(1|B, T) bool: queries that may attend to nothing, whose output is 0; ``None`` if none can be."""
        plain = self.valid_BS is None and self.documents_BS is None and self.pattern is None
        if plain and (self.window is None or self._have_own_keys()):
            return None  # a causal query has its own slot, a bidirectional one has all
        return self._once(("empty", device), lambda: self._empty_BT(device))

    def _empty_BT(self, device: torch.device) -> Tensor | None:
        if (packing := self.packing(device)) is not None:
            return packing.empty_BT(device)
        if self.cut(device) is None:
            allowed = self.dense(device)
            return None if allowed is None else ~allowed.any(-1)[:, 0]
        cut, head = self.cut(device), self.head(device)
        assert cut is not None
        empty_BT = ~cut.merged(self.blocks(device).any(-1))
        if head is None:
            return empty_BT
        first = head.empty_BT(device)
        first = empty_BT.new_zeros(1, head.queries) if first is None else first
        return torch.cat([first.expand(empty_BT.shape[0], -1), empty_BT[:, head.queries :]], 1)

    def is_whole(self) -> bool:
        """Whether queries and keys are the same slots, from the first on."""
        return self.start == self.first == 0 and self.queries == self.keys

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
        return self._once(("sdpa", device), lambda: self._sdpa(device)), False

    def _sdpa(self, device: torch.device) -> Tensor | None:
        allowed, empty = self.dense(device), self.empty_BT(device)
        return allowed if allowed is None or empty is None else allowed | empty[:, None, :, None]

    def sdpa_blocks(self, device: torch.device) -> Tensor:
        """``blocks`` for ``scaled_dot_product_attention``: rows that may attend to nothing are opened, as there."""

        def opened() -> Tensor:
            allowed = self.blocks(device)
            return allowed | ~allowed.any(-1, keepdim=True)

        return self._once(("sdpa blocks", device), opened)

    def flex(self, device: torch.device, batch: int) -> Any:
        """The ``BlockMask`` of FlexAttention."""
        return self._once(("flex", device, batch), lambda: block_mask(self, device, batch))


def _all(allowed: list[Tensor]) -> Tensor:
    result = allowed[0]
    for part in allowed[1:]:
        result = result & part
    return result


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
