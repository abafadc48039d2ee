"""BERT's summary of its input: the first token's hidden state through a layer with tanh.

    pooled = tanh(W h_0 + b)

Devlin et al. 2019, arXiv:1810.04805, section 3.1 (article, section 8). D^2 + D parameters.
"""

from __future__ import annotations

from typing import Any, final

from torch import Tensor

from zoo.contracts.head import Head
from zoo.nn.pooling import Pooler, pooled

__all__ = ["PoolerHead"]


@final
class PoolerHead(Head):
    """One vector for the whole input, as the published BERT and RoBERTa models without a task's head have it."""

    offers = frozenset({"pooled"})

    reads_front = True

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.pooler = Pooler(self.dim)

    def forward(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """(B, D) from (B, T, D) hidden states; the first token is the first that is no padding."""
        return self.pooler(pooled(hidden_BTD, valid_BT, "first", extra=self.embedding.extra))
