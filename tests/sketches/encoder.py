"""An encoder: every token sees every other; padding is hidden, and so are other documents.

ids -> token table (+ positions) -> blocks without a causal mask -> hidden -> token table^T
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.config import Slot
from zoo.contracts.architecture import Architecture, Factory, Output, Parts
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import EVERYTHING, Mask
from zoo.contracts.values.notes import Notes
from zoo.initialization import initialize
from zoo.nn.block import Stack

__all__ = ["Encoder"]


class Encoder(Architecture):
    """What BERT's stack is, without its embeddings of segments and its heads."""

    needs = frozenset({"bidirectional"})
    offers = frozenset({"bidirectional", "padding", "documents"})
    slots: ClassVar[Mapping[str, Slot]] = {
        "attention": Slot("attention", "multi_head", cycled=True),
        "position": Slot("position", "learned", cycled=True),
        "feed_forward": Slot("feed_forward", "mlp", cycled=True),
        "norm": Slot("norm", "layer_norm"),
        "residual": Slot("residual", "post"),
    }

    @dataclasses.dataclass(kw_only=True)
    class Config(Architecture.Config):
        """Sizes."""

        vocab_size: int | None = None
        """Number of token ids."""
        max_length: int | None = None
        """Longest input."""
        layers: int = 2
        """Number of blocks."""
        dim: int = 16
        """Width."""
        heads: int = 4
        """Attention heads."""

    def __init__(
        self, config: Any, *, attention: Parts, position: Parts, feed_forward: Parts, norm: Factory, residual: Factory
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
        mask, at_BTA, keys_BSA = Cache().extend(mask or EVERYTHING, ids_BT, positions_BTA)
        places = self.stack.places(at_BTA, keys_BSA)
        x_BTD = self.stack.embed(self.tokens(ids_BT), places)
        return Output(self.stack(x_BTD, mask=mask, places=places, notes=notes), notes.auxiliary_total())

    @property
    def head_weight(self) -> Tensor:
        """(V, D)."""
        return self.tokens.weight

    @property
    def max_length(self) -> int | None:
        """The config's, if a position scheme is bound by it."""
        return self.stack.max_length

    def block_modules(self) -> Iterator[nn.Module]:
        """The blocks in order."""
        return iter(self.stack.blocks)

    def initialize(self, seed: int) -> None:
        """Normal with deviation 0.02."""
        initialize(self, seed, std=0.02, branch_std=0.02)
