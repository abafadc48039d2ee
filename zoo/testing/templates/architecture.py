"""A decoder of tokens with a head of its own; change what ``forward`` says.

    ids -> token table (+ positions) -> blocks with a causal mask -> norm -> hidden -> head

Its parts are handed in: what fits each slot is a component of that kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.config import Slot
from zoo.contracts.architecture import Architecture, Factory, Output, Parts
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import CAUSAL, Mask
from zoo.contracts.values.notes import Notes
from zoo.initialization import initialize
from zoo.nn.block import Stack

__all__ = ["Mine"]


class Mine(Architecture):
    """B batch, T tokens, D width."""

    needs = frozenset({"causal"})
    offers = frozenset({"causal", "cache", "padding", "documents"})
    slots: ClassVar[Mapping[str, Slot]] = {
        "attention": Slot("attention", "multi_head", cycled=True),
        "position": Slot("position", "rotary", cycled=True),
        "feed_forward": Slot("feed_forward", "mlp", cycled=True),
        "norm": Slot("norm", "layer_norm"),
        "residual": Slot("residual", "pre"),
    }

    @dataclasses.dataclass(kw_only=True)
    class Config(Architecture.Config):
        """Sizes of the network; null means the data's."""

        vocab_size: int | None = None
        """Number of token ids."""
        max_length: int | None = None
        """Longest input in tokens, for positions that have a bound."""
        layers: int = 4
        """Number of blocks."""
        dim: int = 128
        """Width D."""
        heads: int = 4
        """Attention heads N."""

    def __init__(
        self,
        config: Any,
        *,
        attention: Parts,
        position: Parts,
        feed_forward: Parts,
        norm: Factory,
        residual: Factory,
    ) -> None:
        super().__init__(config)
        self.tokens = nn.Embedding(config.vocab_size, config.dim)
        self.stack = Stack(
            dim=config.dim,
            heads=config.heads,
            layers=config.layers,
            length=config.max_length,
            dropout=0.0,
            attention=attention,
            position=position,
            feed_forward=feed_forward,
            norm=norm,
            residual=residual,
        )
        self.scores = nn.Linear(config.dim, config.vocab_size, bias=False)

    def forward(
        self,
        ids_BT: Tensor,
        *,
        mask: Mask | None = None,
        positions_BTA: Tensor | None = None,
        cache: Cache | None = None,
        notes: Notes | None = None,
    ) -> Output:
        """Hidden states (B, T, D) of tokens (B, T)."""
        notes = Notes() if notes is None else notes
        history = Cache() if cache is None else cache
        mask, at_BTA, keys_BSA = history.extend(mask or CAUSAL, ids_BT, positions_BTA)
        places = self.stack.places(at_BTA, keys_BSA)
        x_BTD = self.stack.embed(self.tokens(ids_BT), places)
        hidden_BTD = self.stack(x_BTD, mask=mask, places=places, cache=cache, notes=notes)
        return Output(hidden_BTD, notes.auxiliary_total())

    @property
    def head_weight(self) -> Tensor:
        """(V, D)."""
        return self.scores.weight

    @property
    def max_length(self) -> int | None:
        """The config's, if a position scheme is bound by it."""
        return self.stack.max_length

    def block_modules(self) -> Iterator[nn.Module]:
        """The blocks in order."""
        return iter(self.stack.blocks)

    def initialize(self, seed: int) -> None:
        """Normal with deviation 0.02, as GPT-2."""
        initialize(self, seed, std=0.02, branch_std=0.02 / (2 * self.config.layers) ** 0.5)
