"""A decoder that attends to an encoder's output: three branches in a block instead of two.

    x + self(norm(x)), x + cross(norm(x), memory), x + feed_forward(norm(x))

Vaswani et al. 2017, arXiv:1706.03762. The memory and its padding live in the cache beside the keys made of them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.config import Slot
from zoo.contracts.architecture import Architecture, Factory, Output, Parts
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import CAUSAL, EVERYTHING, Mask
from zoo.contracts.values.notes import Notes
from zoo.initialization import initialize
from zoo.nn.block import Stack, dealt

__all__ = ["CrossDecoder"]


class CrossDecoder(Architecture):
    """An encoder-decoder; without a source it attends to what the cache remembers, or to one start token."""

    needs = frozenset({"causal", "bidirectional", "cross"})
    offers = frozenset({"causal", "cross", "cache", "padding", "documents"})
    slots: ClassVar[Mapping[str, Slot]] = {
        "attention": Slot("attention", "multi_head", cycled=True),
        "position": Slot("position", "sinusoidal", cycled=True),
        "feed_forward": Slot("feed_forward", "mlp", cycled=True),
        "norm": Slot("norm", "layer_norm"),
        "residual": Slot("residual", "pre"),
    }

    @dataclasses.dataclass(kw_only=True)
    class Config(Architecture.Config):
        """Sizes of both sides."""

        vocab_size: int | None = None
        """Number of token ids."""
        max_length: int | None = None
        """Longest input."""
        layers: int = 2
        """Blocks on each side."""
        dim: int = 16
        """Width."""
        heads: int = 4
        """Attention heads."""

    def __init__(
        self, config: Any, *, attention: Parts, position: Parts, feed_forward: Parts, norm: Factory, residual: Factory
    ) -> None:
        super().__init__(config)
        sides = (residual, lambda **parent: residual(**{**parent, "branches": 3}))
        self.tokens = nn.Embedding(config.vocab_size, config.dim)
        self.encoder, self.decoder = (
            Stack(
                dim=config.dim,
                heads=config.heads,
                layers=config.layers,
                length=config.max_length,
                dropout=0.0,
                attention=attention,
                position=position,
                feed_forward=feed_forward,
                norm=norm,
                residual=side,
            )
            for side in sides
        )
        self.cross = nn.ModuleList(
            dealt(attention, layer)(dim=config.dim, heads=config.heads, layer=layer, layers=config.layers)
            for layer in range(config.layers)
        )

    def forward(
        self,
        ids_BT: Tensor,
        *,
        mask: Mask | None = None,
        positions_BTA: Tensor | None = None,
        cache: Cache | None = None,
        notes: Notes | None = None,
        source_BS: Tensor | None = None,
        source_valid_BS: Tensor | None = None,
    ) -> Output:
        """Hidden states (B, T, D) of target tokens, given source tokens (B, S) or a cache that knows them."""
        notes = Notes() if notes is None else notes
        memory_BSD, valid_BS = self._memory(ids_BT, source_BS, source_valid_BS, cache)
        history = Cache() if cache is None else cache
        mask, at_BTA, keys_BSA = history.extend(mask or CAUSAL, ids_BT, positions_BTA)
        over_memory = Mask(valid_BS=valid_BS).sized(ids_BT.shape[1], memory_BSD.shape[1])
        places = self.decoder.places(at_BTA, keys_BSA)
        x_BTD = self.decoder.embed(self.tokens(ids_BT), places)
        for layer, block in enumerate(self.decoder.blocks):
            place = places[layer % len(places)]
            caches = [None if cache is None else cache.layer((layer, kind)) for kind in ("self", "cross")]
            attend = functools.partial(block.attention, mask=mask, place=place, cache=caches[0], notes=notes)
            look = functools.partial(
                self.cross[layer], context_BSD=memory_BSD, mask=over_memory, cache=caches[1], notes=notes
            )
            feed = functools.partial(block.feed_forward, valid_BT=mask.valid_BT(), notes=notes)
            x_BTD = block.residual(x_BTD, (attend, look, feed))
        return Output(self.decoder.final_norm(x_BTD), notes.auxiliary_total())

    def _memory(
        self, ids_BT: Tensor, source_BS: Tensor | None, valid_BS: Tensor | None, cache: Cache | None
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states of the source and its padding, made once and kept in the cache."""
        kept = None if cache is None else cache.layer("memory")
        if kept is not None and (memory_BSD := kept.get("hidden")) is not None:
            return memory_BSD, kept.get("valid")
        source_BS = ids_BT[:, :1] * 0 if source_BS is None else source_BS
        mask, at_BSA, keys_BSA = Cache().extend(dataclasses.replace(EVERYTHING, valid_BS=valid_BS), source_BS)
        places = self.encoder.places(at_BSA, keys_BSA)
        memory_BSD = self.encoder(self.encoder.embed(self.tokens(source_BS), places), mask=mask, places=places)
        if kept is not None:
            kept.put("hidden", memory_BSD)
            if valid_BS is not None:
                kept.put("valid", valid_BS)
        return memory_BSD, valid_BS

    @property
    def head_weight(self) -> Tensor:
        """(V, D)."""
        return self.tokens.weight

    @property
    def max_length(self) -> int | None:
        """The config's, if a position scheme is bound by it."""
        return self.decoder.max_length

    def block_modules(self) -> Iterator[nn.Module]:
        """Blocks of both sides, and the attentions between them."""
        yield from (*self.encoder.blocks, *self.decoder.blocks, *self.cross)

    def initialize(self, seed: int) -> None:
        """Normal with deviation 0.02."""
        initialize(self, seed, std=0.02, branch_std=0.02)
