"""What architectures of one stack share: an embedding, blocks, and a head, in a row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.config import Slot
from zoo.contracts.architecture import Architecture, Factory, Output, Parts
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.initialization import initialize
from zoo.nn.block import Stack


def single_stack_slots(
    *, embedding: str, position: str, residual: str, head: str, needs: frozenset[str]
) -> Mapping[str, Slot]:
    """The slots of such an architecture with its own defaults; ``needs`` are words that its attention must offer."""
    return {
        "embedding": Slot("embedding", embedding),
        "attention": Slot("attention", "multi_head", cycled=True, needs=needs),
        "position": Slot("position", position, cycled=True),
        "feed_forward": Slot("feed_forward", "mlp", cycled=True),
        "norm": Slot("norm", "layer_norm"),
        "residual": Slot("residual", residual),
        "head": Slot("head", head),
    }


class SingleStack(Architecture):
    """inputs -> embedding, positions, dropout -> blocks -> closing norm where the residual asks for one -> hidden.

    A subclass says its ``offers``, its ``slots``, whether it is ``causal``, and how its parameters begin.
    """

    causal: ClassVar[bool]
    """Whether its own mask hides what comes later."""
    small_branches: ClassVar[bool] = False
    """Whether the last layer of each branch begins smaller, by 1 / sqrt(2 layers)."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Architecture.Config):
        """Sizes of the network."""

        layers: int = 12
        """Number of blocks."""
        dim: int = 768
        """Width D."""
        heads: int = 12
        """Attention heads N."""
        dropout: float = 0.0
        """Probability of dropping an embedding, an attention weight or a branch's output element."""
        embedding_norm: bool = False
        """Whether embeddings with their positions are normalized before the first block."""
        final_norm: bool | None = None
        """Whether a norm ends the stack; null leaves it to the residual arrangement."""
        initial_std: float | None = None
        """Deviation of initial weights; null is 0.02 at a width of 768, and falls with the root of the width."""

    def __init__(
        self,
        config: Any,
        *,
        embedding: Factory,
        attention: Parts,
        position: Parts,
        feed_forward: Parts,
        norm: Factory,
        residual: Factory,
        head: Factory,
    ) -> None:
        super().__init__(config)
        sizes = config.sizes()
        self.embedding = embedding(dim=config.dim, sizes=sizes)
        self.stack = Stack(
            dim=config.dim,
            heads=config.heads,
            layers=config.layers,
            length=self.embedding.places or config.max_length,
            tokens=self.embedding.length,
            causal=self.causal,
            grid=self.embedding.grid,
            dropout=config.dropout,
            attention=attention,
            position=position,
            feed_forward=feed_forward,
            norm=norm,
            residual=residual,
            embedding_norm=config.embedding_norm,
            final_norm=config.final_norm,
        )
        self.head = head(dim=config.dim, sizes=sizes, embedding=self.embedding, norm=norm)
        if self.causal:
            self.head.refuse_causal()

    def forward(
        self,
        inputs: Tensor,
        *,
        mask: Mask | None = None,
        positions_BTA: Tensor | None = None,
        cache: Cache | None = None,
        notes: Notes | None = None,
        **details: Tensor,
    ) -> Output:
        """Hidden states (B, T, D), see ``Architecture.forward``; ``details`` go to the embedding (``types_BT``).

        Raises:
            ValueError: a cache, where the architecture offers none.
        """
        if cache is not None and "cache" not in self.offers:
            raise ValueError(f"{type(self).__name__} sees all tokens at once, so it can't go on from a cache")
        notes = Notes() if notes is None else notes
        history = Cache() if cache is None else cache
        x_BTD = self.embedding(inputs, **details)
        mask, at_BTA, keys_BSA = history.extend(mask or Mask(causal=self.causal), x_BTD, positions_BTA)
        places = self.stack.places(self.embedding, inputs, at_BTA, keys_BSA)
        hidden_BTD = self.stack(self.stack.embed(x_BTD, places), mask=mask, places=places, cache=cache, notes=notes)
        return Output(hidden_BTD, notes.auxiliary_mean())

    @property
    def max_length(self) -> int | None:
        """Most tokens, if a position scheme is bound."""
        return self.stack.max_length

    def block_modules(self) -> Iterator[nn.Module]:
        """The blocks in order."""
        return iter(self.stack.blocks)

    def closing_modules(self) -> Iterator[nn.Module]:
        """The closing norm and the head."""
        yield from (self.stack.final_norm, self.head)

    def initialize(self, seed: int) -> None:
        """Normal with ``initial_std``; with ``small_branches`` a branch's last layer has it over sqrt(2 layers)."""
        std = self.config.initial_std or published_std(self.config.dim)
        branch_std = std / (2 * self.config.layers) ** 0.5 if self.small_branches else std
        initialize(self, seed, std=std, branch_std=branch_std)


def published_std(dim: int) -> float:
    """The 0.02 of GPT-2, BERT and ViT at their width of 768, and as much for a sum over any other width.

    With 0.02 at a width of 64 all scores and branches begin near 0, and training loses hundreds of steps.
    """
    return 0.02 * (768 / dim) ** 0.5
