"""One block of a transformer, and a stack of them with its positions and its closing norm."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import cast

from torch import Tensor, nn

from zoo.contracts.architecture import Factory, Parts
from zoo.contracts.attention import Attention
from zoo.contracts.embedding import Embedding
from zoo.contracts.feed_forward import FeedForward
from zoo.contracts.position import Position
from zoo.contracts.residual import Branch, Residual
from zoo.contracts.values.cache import Cache, LayerCache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import Place


class Block(nn.Module):
    """Attention, perhaps cross-attention, and feed-forward in a residual arrangement (equation 12.9, figure 12.3)."""

    def __init__(
        self,
        attention: Attention,
        feed_forward: FeedForward,
        residual: Residual,
        *,
        cross_attention: Attention | None = None,
    ) -> None:
        super().__init__()
        self.attention, self.cross_attention = attention, cross_attention
        self.feed_forward, self.residual = feed_forward, residual

    def forward(
        self,
        x_BTD: Tensor,
        *,
        mask: Mask,
        place: Place,
        cache: Cache | None = None,
        notes: Notes | None = None,
        context_BSD: Tensor | None = None,
        context_mask: Mask | None = None,
    ) -> Tensor:
        """(B, T, D) from (B, T, D), and from the context (B, S, D) where the block looks at one."""
        attend = functools.partial(
            self.attention, mask=mask, place=place, cache=self._memory(cache, "self"), notes=notes
        )
        branches: list[Branch] = [attend]
        if self.cross_attention is not None:
            memory = self._memory(cache, "cross")
            look = functools.partial(self.cross_attention, context_BSD=context_BSD, mask=context_mask, cache=memory)
            branches.append(functools.partial(look, notes=notes))
        branches.append(functools.partial(self.feed_forward, valid_BT=mask.valid_BT(), notes=notes))
        return self.residual(x_BTD, branches)

    def _memory(self, cache: Cache | None, kind: str) -> LayerCache | None:
        return None if cache is None else cache.layer((self.attention.layer, kind))


class Stack(nn.Module):
    """Blocks, the position schemes that they share, and the closing norm where the residual arrangement asks for it.

    Lists of factories are dealt out over the layers in turn: ``attention=[A, B]`` makes A, B, A, B, ... Each
    entry of ``position`` makes one scheme, however many layers use it.

    Args:
        dim: width D.
        heads: attention heads N.
        layers: number of blocks.
        length: longest input in places, for positions that have a bound.
        tokens: longest input in tokens, for mixers with a table over them, where some tokens have no place.
        causal: whether queries see only what is before them, which some schemes must know.
        grid: rows and columns of patches.
        dropout: probability of dropping an embedding, an attention weight or a branch's output element.
        cross_attention: a second attention in each block, over another sequence.
        embedding_norm: whether embeddings are normalized, after positions were added.
        final_norm: whether the stack ends with a norm; ``None`` leaves it to the residual arrangement.

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
        causal: bool,
        attention: Parts,
        position: Parts,
        feed_forward: Parts,
        norm: Factory,
        residual: Factory,
        tokens: int | None = None,
        grid: tuple[int, int] | None = None,
        dropout: float = 0.0,
        cross_attention: Parts | None = None,
        embedding_norm: bool = False,
        final_norm: bool | None = None,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"a stack needs at least one layer, got {layers}")

        def block(layer: int) -> Block:
            here = {"dim": dim, "layer": layer, "layers": layers}
            attends = {**here, "heads": heads, "dropout": dropout, "length": tokens or length}
            return Block(
                dealt(attention, layer)(**attends),
                dealt(feed_forward, layer)(**here),
                residual(**here, norm=norm, branches=3 if cross_attention else 2, dropout=dropout),
                cross_attention=dealt(cross_attention, layer)(**attends) if cross_attention else None,
            )

        blocks = [block(layer) for layer in range(layers)]
        schemes = shared_schemes(as_list(position), blocks, dim=dim, length=length, causal=causal, grid=grid)
        self.blocks, self.positions = nn.ModuleList(blocks), nn.ModuleList(schemes)
        self.embedding_norm = norm(dim=dim) if embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.max_length = length if any(scheme.bounded for scheme in schemes) else None
        ends = blocks[0].residual.final_norm if final_norm is None else final_norm
        self.final_norm = norm(dim=dim) if ends else nn.Identity()

    def places(self, embedding: Embedding, inputs: Tensor, at_BTA: Tensor, keys_BSA: Tensor) -> list[Place]:
        """What each scheme makes of the positions of the queries and of all keys.

        Args:
            embedding: says where tokens stand that don't follow each other.
            inputs: what it was given.
            at_BTA: positions of the queries in a row, as mask and cache have them.
            keys_BSA: those of all keys.
        """
        places = []
        for scheme in cast(Iterable[Position], self.positions):
            if scheme.bounded and scheme.axes == 1:
                embedding.refuse_other_places(inputs)
            own_BTA = embedding.positions(inputs, scheme.axes)
            at, keys = (at_BTA, keys_BSA) if own_BTA is None else (own_BTA, own_BTA)
            places.append(Place(scheme, at, keys, nowhere=embedding.extra > 0))
        return places

    def embed(self, x_BTD: Tensor, places: Sequence[Place]) -> Tensor:
        """Embeddings with positions, norm and dropout."""
        for place in places:
            x_BTD = place.embed(x_BTD)
        return self.dropout(self.embedding_norm(x_BTD))

    def forward(
        self,
        x_BTD: Tensor,
        *,
        mask: Mask,
        places: Sequence[Place],
        cache: Cache | None = None,
        notes: Notes | None = None,
        context_BSD: Tensor | None = None,
        context_mask: Mask | None = None,
    ) -> Tensor:
        """(B, T, D) after all blocks and the closing norm."""
        for layer, block in enumerate(self.blocks):
            x_BTD = block(
                x_BTD,
                mask=mask,
                place=places[layer % len(places)],
                cache=cache,
                notes=notes,
                context_BSD=context_BSD,
                context_mask=context_mask,
            )
        return self.final_norm(x_BTD)


def shared_schemes(
    factories: Sequence[Factory],
    blocks: Sequence[Block],
    *,
    dim: int,
    length: int | None,
    causal: bool,
    grid: tuple[int, int] | None,
) -> list[Position]:
    """One position scheme for each factory, made for the heads of the layers whose turn it is.

    Raises:
        ValueError: these layers compare heads of different number or size, or share keys that each head would turn
            in its own way.
    """
    schemes = []
    for index, factory in enumerate(factories[: len(blocks)]):
        users = [block.attention for block in blocks[index :: len(factories)]]
        shapes = {(user.score_heads, user.score_size) for user in users}
        if len(shapes) > 1:
            raise ValueError(f"layers that share a position scheme differ in (heads, head size): {sorted(shapes)}")
        heads, size = shapes.pop()
        scheme = factory(dim=dim, heads=heads, size=size, length=length, causal=causal, grid=grid)
        for user in users:
            if scheme.by_head and user.key_heads != heads:
                raise ValueError(
                    f"{type(scheme).__name__} turns each head by angles of its own, and {type(user).__name__} has "
                    f"{heads} heads of queries that share {user.key_heads} of keys; choose another of the two"
                )
        schemes.append(scheme)
    return schemes


def as_list(parts: Parts) -> Sequence[Factory]:
    """One factory or several, as several."""
    return [parts] if callable(parts) else parts


def dealt(parts: Parts, layer: int) -> Factory:
    """The factory whose turn it is at a layer."""
    factories = as_list(parts)
    return factories[layer % len(factories)]
