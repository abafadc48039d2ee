"""A learned vector for each position, added to the embeddings; nothing beyond the longest length seen.

Acts on embeddings. GPT-2's table of 1,024 x D (article, section 5, "Learned absolute embeddings").
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

from torch import Tensor, nn

from zoo.contracts.position import Position

__all__ = ["Learned"]


@final
class Learned(Position):
    """A table with a row for each position."""

    bounded = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of learned positions."""

        offset: int = 0
        """Rows of the table before that of position 0, which nothing uses (RoBERTa and BART: 2)."""

    def __init__(self, config: Any, *, length: int | None = None, **parent: Any) -> None:
        super().__init__(config, length=length, **parent)
        if length is None:
            raise ValueError("learned positions need a length; set architecture.max_length")
        if config.offset < 0:
            raise ValueError(f"offset must be at least 0, got {config.offset}")
        self.table = nn.Embedding(config.offset + length, self.dim)

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        """(B, T, D) embeddings with the rows of their positions added.

        Raises:
            ValueError: a position at or past the length.
        """
        self.refuse_past(at_BTA, self.table.num_embeddings - self.config.offset)
        return x_BTD + self.table(at_BTA[..., 0] + self.config.offset)
