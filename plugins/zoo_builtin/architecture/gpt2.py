"""A decoder: tokens and positions, blocks with a causal mask, and the token table again as the head.

    ids -> token table (+ positions) -> dropout
        -> [ x + attention(norm(x)); x + feed_forward(norm(x)) ] x layers     (article, equation 12.9)
        -> norm -> hidden -> token table^T -> scores of the next token

Radford et al. 2019, "Language models are unsupervised multitask learners" (GPT-2); with ``residual: post`` it is
GPT-1, with rotary positions, RMS norm and SwiGLU it is Llama's kind. The defaults are GPT-2 small: 124,439,808
parameters with a vocabulary of 50,257 and a length of 1,024.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, final

from torch import Tensor, nn

from zoo.config import Slot
from zoo.contracts.architecture import Architecture, Factory, Output, Parts
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import CAUSAL, Mask
from zoo.contracts.values.notes import Notes
from zoo.initialization import initialize
from zoo.nn.block import Stack

__all__ = ["GPT2"]


@final
class GPT2(Architecture):
    """A causal language model."""

    needs = frozenset({"causal"})
    offers = frozenset({"causal", "cache", "padding", "documents"})
    slots = {  # noqa: RUF012
        "attention": Slot("attention", "multi_head", cycled=True),
        "position": Slot("position", "learned", cycled=True),
        "feed_forward": Slot("feed_forward", "mlp", cycled=True),
        "norm": Slot("norm", "layer_norm"),
        "residual": Slot("residual", "pre"),
    }

    @dataclasses.dataclass(kw_only=True)
    class Config(Architecture.Config):
        """Sizes of the network."""

        vocab_size: int | None = None
        """Number of token ids V; null means the tokenizer's."""
        max_length: int | None = None
        """Longest input in tokens, for positions that have a bound; null means the data's."""
        layers: int = 12
        """Number of blocks."""
        dim: int = 768
        """Width D."""
        heads: int = 12
        """Attention heads N."""
        dropout: float = 0.0
        """Probability of dropping an embedding, an attention weight or a branch's output element."""
        tied: bool = True
        """Whether the head reuses the token table (weight tying)."""

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
        if config.vocab_size is None:
            raise ValueError("vocab_size is null, and no data filled it in")
        if config.vocab_size < 1 or config.dim < 1:
            raise ValueError(f"vocab_size and dim must be positive, got {config.vocab_size} and {config.dim}")
        self.tokens = nn.Embedding(config.vocab_size, config.dim)
        self.stack = Stack(
            dim=config.dim,
            heads=config.heads,
            layers=config.layers,
            length=config.max_length,
            dropout=config.dropout,
            attention=attention,
            position=position,
            feed_forward=feed_forward,
            norm=norm,
            residual=residual,
        )
        self.untied_head = None if config.tied else nn.Linear(config.dim, config.vocab_size, bias=False)

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
        """(V, D): the token table itself where the head is tied, so that no copy can drift from it."""
        return self.tokens.weight if self.untied_head is None else self.untied_head.weight

    @property
    def max_length(self) -> int | None:
        """The config's ``max_length`` if a position scheme is bound by it."""
        return self.stack.max_length

    def block_modules(self) -> Iterator[nn.Module]:
        """The blocks in order."""
        return iter(self.stack.blocks)

    def initialize(self, seed: int) -> None:
        """Normal, deviation 0.02; the last layer of each branch smaller by 1 / sqrt(2 layers) (GPT-2, section 2.3)."""
        initialize(self, seed, std=0.02, branch_std=0.02 / (2 * self.config.layers) ** 0.5)
