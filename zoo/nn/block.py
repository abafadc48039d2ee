"""One block of a transformer, and a stack of them with its positions and its closing norm."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import cast

from torch import Tensor, nn

from zoo.contracts.architecture import Factory, Parts
from zoo.contracts.attention import Attention
from zoo.contracts.feed_forward import FeedForward
from zoo.contracts.position import Position
from zoo.contracts.residual import Residual
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import Place


class Block(nn.Module):
    """Attention and feed-forward in a residual arrangement (equation 12.9, figure 12.3)."""

    def __init__(self, attention: Attention, feed_forward: FeedForward, residual: Residual) -> None:
        super().__init__()
        self.attention, self.feed_forward, self.residual = attention, feed_forward, residual

    def forward(
        self, x_BTD: Tensor, *, mask: Mask, place: Place, cache: Cache | None = None, notes: Notes | None = None
    ) -> Tensor:
        """(B, T, D) from (B, T, D)."""
        layer_cache = None if cache is None else cache.layer((self.attention.layer, "self"))
        attend = functools.partial(self.attention, mask=mask, place=place, cache=layer_cache, notes=notes)
        feed = functools.partial(self.feed_forward, valid_BT=mask.valid_BT(), notes=notes)
        return self.residual(x_BTD, (attend, feed))


class Stack(nn.Module):
    """Blocks, the position schemes that they share, and the closing norm where the residual arrangement asks for it.

    Lists of factories are dealt out over the layers in turn: ``attention=[A, B]`` makes A, B, A, B, ... Each
    entry of ``position`` makes one scheme, however many layers use it.

    Raises:
        ValueError: layers that share a scheme but compare heads of different number or size.
    """

    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        layers: int,
        length: int | None,
        dropout: float,
        attention: Parts,
        position: Parts,
        feed_forward: Parts,
        norm: Factory,
        residual: Factory,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"a stack needs at least one layer, got {layers}")
        blocks = [
            Block(
                dealt(attention, layer)(dim=dim, heads=heads, layer=layer, layers=layers, dropout=dropout),
                dealt(feed_forward, layer)(dim=dim, layer=layer, layers=layers),
                residual(dim=dim, norm=norm, branches=2, layer=layer, layers=layers, dropout=dropout),
            )
            for layer in range(layers)
        ]
        schemes = shared_schemes(as_list(position), blocks, dim=dim, length=length)
        self.blocks, self.positions = nn.ModuleList(blocks), nn.ModuleList(schemes)
        self.dropout = nn.Dropout(dropout)
        self.max_length = length if any(scheme.bounded for scheme in schemes) else None
        self.final_norm = norm(dim=dim) if blocks[0].residual.final_norm else nn.Identity()

    def places(self, at_BTA: Tensor, keys_BSA: Tensor, *, nowhere: bool = False) -> list[Place]:
        """What each scheme makes of the positions of the queries and of all keys."""
        schemes = cast(Iterable[Position], self.positions)
        return [Place(scheme, at_BTA, keys_BSA, nowhere=nowhere) for scheme in schemes]

    def embed(self, x_BTD: Tensor, places: Sequence[Place]) -> Tensor:
        """Token embeddings with positions and dropout."""
        for place in places:
            x_BTD = place.embed(x_BTD)
        return self.dropout(x_BTD)

    def forward(
        self,
        x_BTD: Tensor,
        *,
        mask: Mask,
        places: Sequence[Place],
        cache: Cache | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        """(B, T, D) after all blocks and the closing norm."""
        for layer, block in enumerate(self.blocks):
            x_BTD = block(x_BTD, mask=mask, place=places[layer % len(places)], cache=cache, notes=notes)
        return self.final_norm(x_BTD)


def shared_schemes(
    factories: Sequence[Factory], blocks: Sequence[Block], *, dim: int, length: int | None
) -> list[Position]:
    """One position scheme for each factory, made for the heads of the layers whose turn it is.

    Raises:
        ValueError: these layers compare heads of different number or size.
    """
    schemes = []
    for index, factory in enumerate(factories[: len(blocks)]):
        users = [block.attention for block in blocks[index :: len(factories)]]
        shapes = {(user.score_heads, user.score_size) for user in users}
        if len(shapes) > 1:
            raise ValueError(f"layers that share a position scheme differ in (heads, head size): {sorted(shapes)}")
        heads, size = shapes.pop()
        schemes.append(factory(dim=dim, heads=heads, size=size, length=length))
    return schemes


def as_list(parts: Parts) -> Sequence[Factory]:
    """One factory or several, as several."""
    return [parts] if callable(parts) else parts


def dealt(parts: Parts, layer: int) -> Factory:
    """The factory whose turn it is at a layer."""
    factories = as_list(parts)
    return factories[layer % len(factories)]
