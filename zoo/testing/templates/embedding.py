"""A vector for each token; change what ``forward`` says.

    x_t = E[token t]

V D parameters.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from zoo.contracts.embedding import Embedding

__all__ = ["Mine"]


class Mine(Embedding):
    """B batch, T tokens, D width, V vocabulary."""

    offers = frozenset({"tokens"})
    takes = frozenset({"vocab_size", "max_length"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Embedding.Config):
        """Knobs: a type, a default, a docstring."""

        factor: float = 1.0
        """What every vector is multiplied by."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.tokens = nn.Embedding(self.sizes.vocab_size or 1, self.dim)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T, D) from (B, T) int64."""
        return self.tokens(inputs) * self.config.factor

    @property
    def table(self) -> Tensor:
        """(V, D), for a head that is tied to it."""
        return self.tokens.weight

    def example(self, batch: int, length: int, generator: torch.Generator | None = None) -> Tensor:
        """(B, T) random tokens."""
        return torch.randint(self.tokens.num_embeddings, (batch, length), generator=generator)
