"""What generation remembers: per layer, named tensors; per model, which slots hold what.

Every tensor is batch first, so reordering beams, repeating prompts and counting bytes need to know no variant.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import torch
from torch import Tensor

from zoo.contracts.values.mask import Mask, positions_of


class LayerCache:
    """The memory of one attention: ``append`` along a time axis, or ``put`` a state."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._ranges: dict[str, tuple[int, int, int]] = {}  # axis, begin and end of the live part

    def get(self, name: str) -> Tensor | None:
        """The live part of what is kept under a name, or ``None``."""
        if name not in self._buffers:
            return None
        if name not in self._ranges:
            return self._buffers[name]
        axis, begin, end = self._ranges[name]
        return self._buffers[name].narrow(axis, begin, end - begin)

    def put(self, name: str, value: Tensor) -> None:
        """Keep a state, batch first, in place of what was there."""
        self._buffers[name] = value
        self._ranges.pop(name, None)

    def append(self, name: str, new: Tensor, axis: int, *, keep: int | None = None) -> Tensor:
        """Add ``new`` along a time axis and return all that the new queries may need.

        Args:
            name: the tensor's name in this layer.
            new: batch first, T entries along ``axis``.
            axis: the time axis, at least 1.
            keep: a rolling cache: a query needs this many entries, its own included; older ones are dropped.
        """
        live = self.get(name)
        if live is None:
            self._start(name, new, axis, keep)
            return new
        if keep is not None:
            live = live.narrow(axis, max(0, live.shape[axis] - keep + 1), min(live.shape[axis], keep - 1))
        if torch.is_grad_enabled() and (new.requires_grad or live.requires_grad):
            self._buffers[name] = torch.cat([live, new], axis)
            self._ranges[name] = (axis, 0, self._buffers[name].shape[axis])
        else:
            self._write(name, live, new, axis)
        result = self.get(name)
        assert result is not None
        return result

    def _start(self, name: str, new: Tensor, axis: int, keep: int | None) -> None:
        count = new.shape[axis]
        if keep is not None and keep < count:  # a copy, so that the rest of a long prompt is freed
            new, count = new.narrow(axis, count - keep, keep).clone(), keep
        self._buffers[name], self._ranges[name] = new, (axis, 0, count)

    def _write(self, name: str, live: Tensor, new: Tensor, axis: int) -> None:
        """Write into spare room, or move the live part to a buffer twice as long: O(1) copies a token."""
        buffer, (_, _, end) = self._buffers[name], self._ranges[name]
        kept, added = live.shape[axis], new.shape[axis]
        if end + added > buffer.shape[axis] or new.dtype != buffer.dtype:
            shape = list(new.shape)
            shape[axis] = 2 * (kept + added)
            buffer = new.new_empty(shape)
            buffer.narrow(axis, 0, kept).copy_(live)
            end = kept
        buffer.narrow(axis, end, added).copy_(new)
        self._buffers[name] = buffer
        self._ranges[name] = (axis, end - kept, end + added)

    def reorder(self, index_B: Tensor) -> None:
        """Take rows of the batch, by index; rows may repeat and their number may change."""
        for name in self._buffers:
            live = self.get(name)
            assert live is not None
            self._buffers[name] = live.index_select(0, index_B)
            if name in self._ranges:
                axis = self._ranges[name][0]
                self._ranges[name] = (axis, 0, live.shape[axis])

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Names and live parts."""
        for name in self._buffers:
            live = self.get(name)
            assert live is not None
            yield name, live

    def spare(self) -> Iterator[Tensor]:
        """The parts of the buffers that hold nothing; whatever stands there must not matter."""
        for name, (axis, begin, end) in self._ranges.items():
            buffer = self._buffers[name]
            yield buffer.narrow(axis, 0, begin)
            yield buffer.narrow(axis, end, buffer.shape[axis] - end)


class Cache:
    """The memory of one model over one batch: layers by key, and the history that all layers share.

    A decoding step passes its own tokens and ``Mask(causal=True)``; what earlier calls said of padding,
    positions and documents is remembered here, once. With a cache, pad on the left.
    """

    def __init__(self) -> None:
        self.length = 0
        self.valid_BS: Tensor | None = None
        self.documents_BS: Tensor | None = None
        self.positions_BSA: Tensor | None = None
        self._explicit = False
        self._layers: dict[Hashable, LayerCache] = {}

    def layer(self, key: Hashable) -> LayerCache:
        """The memory of one attention, by the caller's key: its layer index and ``self`` or ``cross``."""
        return self._layers.setdefault(key, LayerCache())

    def extend(self, mask: Mask, ids_BT: Tensor, positions_BTA: Tensor | None = None) -> tuple[Mask, Tensor, Tensor]:
        """Take in T new tokens and say where they stand.

        Args:
            mask: the caller's, its padding and documents over the new tokens only.
            ids_BT: only its batch size, length and device matter.
            positions_BTA: (1|B, T, axes) int64; by default they go on from where the last call ended.

        Returns:
            The mask over T queries and S keys, the positions of the queries (1|B, T, axes), and those of all
            keys (1|B, S, axes).

        Raises:
            ValueError: tokens after a right-padded call, or a prefix that is longer than the first call.
        """
        batch, new = ids_BT.shape[:2]
        self._refuse(mask, new)
        old = self.length
        self.valid_BS = _continued(self.valid_BS, mask.valid_BS, old, batch, new, ids_BT.device)
        self.documents_BS = _continued(self.documents_BS, mask.documents_BS, old, batch, new, ids_BT.device)
        self._explicit = self._explicit or positions_BTA is not None
        at_BTA = self._next_positions(new, ids_BT.device) if positions_BTA is None else positions_BTA
        self.positions_BSA = at_BTA if self.positions_BSA is None else _joined(self.positions_BSA, at_BTA)
        self.length = old + new
        whole = Mask(
            causal=mask.causal,
            window=mask.window,
            prefix_B=mask.prefix_B,
            valid_BS=self.valid_BS,
            documents_BS=self.documents_BS,
        )
        return whole.sized(new, self.length, start=old), at_BTA, self.positions_BSA

    def _refuse(self, mask: Mask, new: int) -> None:
        if self.length and self.valid_BS is not None and not bool(self.valid_BS[:, -1].all()):
            raise ValueError("more tokens after a right-padded call: with a cache, pad on the left")
        if mask.prefix_B is not None and (self.length or int(mask.prefix_B.max()) > new):
            raise ValueError("with a cache, a prefix must lie within the first call")

    def _next_positions(self, new: int, device: torch.device) -> Tensor:
        if self._explicit and self.positions_BSA is not None:
            steps = torch.arange(1, new + 1, device=device)[None, :, None]
            return self.positions_BSA[:, -1:, :] + steps
        if self.valid_BS is None and self.documents_BS is None:
            return torch.arange(self.length, self.length + new, device=device)[None, :, None]
        return positions_of(self.valid_BS, self.documents_BS)[:, self.length :, None]

    def reorder(self, index_B: Tensor) -> None:
        """Take rows of the batch, by index: beams are reordered, prompts repeated."""
        for layer in self._layers.values():
            layer.reorder(index_B)
        for name in ("valid_BS", "documents_BS", "positions_BSA"):
            value = getattr(self, name)
            if value is not None and not (name == "positions_BSA" and value.shape[0] == 1):
                setattr(self, name, value.index_select(0, index_B))

    def bytes(self) -> int:
        """Bytes of all live tensors of all layers."""
        return sum(
            tensor.numel() * tensor.element_size() for layer in self._layers.values() for _, tensor in layer.tensors()
        )

    def layers(self) -> dict[Hashable, LayerCache]:
        """All layers by key."""
        return self._layers


def _continued(
    past_BS: Tensor | None, new_BT: Tensor | None, old: int, batch: int, new: int, device: torch.device
) -> Tensor | None:
    """Padding or documents with the new tokens behind: these are valid, and of the last document, unless said."""
    if past_BS is None and new_BT is None:
        return None
    if new_BT is not None and tuple(new_BT.shape) != (batch, new):
        raise ValueError(f"the mask covers {tuple(new_BT.shape)} tokens, the batch has {(batch, new)}")
    like = past_BS if past_BS is not None else new_BT
    assert like is not None
    is_valid = like.dtype == torch.bool
    if past_BS is None:
        past_BS = torch.full((batch, old), is_valid, dtype=like.dtype, device=device)
    if new_BT is None:
        new_BT = (
            torch.ones(batch, new, dtype=torch.bool, device=device) if is_valid else past_BS[:, -1:].expand(-1, new)
        )
    return torch.cat([past_BS, new_BT], 1)


def _joined(past_BSA: Tensor, new_BTA: Tensor) -> Tensor:
    batch = max(past_BSA.shape[0], new_BTA.shape[0])
    return torch.cat([past_BSA.expand(batch, -1, -1), new_BTA.expand(batch, -1, -1)], 1)
