"""A learned vector for each token of a vocabulary, and perhaps one for each type of token.

    x_t = scale * E[token t] (+ types[type of t])

V D parameters (article, section 1). Token types tell two sentences apart in BERT (Devlin et al. 2019,
arXiv:1810.04805, figure 2); the original transformer multiplies by sqrt(D) (Vaswani et al. 2017, section 3.4).
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.embedding import Embedding

__all__ = ["Tokens"]


@final
class Tokens(Embedding):
    """The table of a language model."""

    offers = frozenset({"tokens"})
    takes = frozenset({"vocab_size", "max_length"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Embedding.Config):
        """Knobs of the token table."""

        types: int = 0
        """Types of token, 0 for none: BERT has 2, RoBERTa 1."""
        scale: bool = False
        """Whether vectors are multiplied by sqrt(D)."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        size = self.sizes.vocab_size
        if size is None:
            raise ValueError("vocab_size is null, and no data filled it in")
        if size < 1 or self.dim < 1:
            raise ValueError(f"vocab_size and dim must be positive, got {size} and {self.dim}")
        self.tokens = nn.Embedding(size, self.dim)
        self.types = nn.Embedding(config.types, self.dim) if config.types else None

    def forward(self, inputs: Tensor, types_BT: Tensor | None = None) -> Tensor:
        """(B, T, D) vectors of (B, T) int64 tokens.

        Args:
            inputs: tokens, each below the vocabulary size.
            types_BT: int64 types of the tokens; ``None`` is 0 for all.

        Raises:
            ValueError: types, where the table has none.
        """
        x_BTD = self.tokens(inputs)
        if self.config.scale:
            x_BTD = x_BTD * self.dim**0.5
        if self.types is None:
            if types_BT is not None:
                raise ValueError("token types were given to an embedding without them; set embedding.types")
            return x_BTD
        return x_BTD + self.types(torch.zeros_like(inputs) if types_BT is None else types_BT)

    @property
    def table(self) -> Tensor:
        """(V, D)."""
        return self.tokens.weight

    def example(self, batch: int, length: int, generator: torch.Generator | None = None) -> Tensor:
        """(B, T) random tokens."""
        return torch.randint(self.tokens.num_embeddings, (batch, length), generator=generator)
