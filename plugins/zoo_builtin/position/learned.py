"""A learned vector for each position, added to the embeddings; nothing beyond the longest length seen.

Acts on embeddings. GPT-2's table of 1,024 x D (article, section 5, "Learned absolute embeddings").
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.position import Position

__all__ = ["Learned"]


@final
class Learned(Position):
    """A table with a row for each position."""

    bounded = True

    def __init__(self, config: Any, *, length: int | None = None, **parent: Any) -> None:
        super().__init__(config, length=length, **parent)
        if length is None:
            raise ValueError("learned positions need a length; set architecture.max_length")
        self.table = nn.Embedding(length, self.dim)

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        """(B, T, D) embeddings with the rows of their positions added.

        Raises:
            ValueError: a position at or past the length (looked at on a CPU only: elsewhere it would stop the device).
        """
        if (
            at_BTA.is_cpu
            and not torch.compiler.is_compiling()
            and (last := int(at_BTA.max())) >= self.table.num_embeddings
        ):
            raise ValueError(f"position {last} is past the last learned one, {self.table.num_embeddings - 1}")
        return x_BTD + self.table(at_BTA[..., 0])
