"""Both heads with which BERT was trained: hidden tokens, and whether the second sentence follows the first.

    token scores = E norm(f(W h + c)) + b
    order scores = W_2 tanh(W_1 h_0 + b_1) + b_2        (0: it follows, 1: it is a sentence from elsewhere)

Devlin et al. 2019, arXiv:1810.04805, section 3.1 (article, section 8). Those of ``masked_lm``, D^2 + D of the pooler,
and 2 D + 2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

from torch import Tensor, nn

from zoo.contracts.head import TokenHead
from zoo.nn.masked import Activation, Transform
from zoo.nn.pooling import Pooler, pooled

__all__ = ["Pretraining"]


@final
class Pretraining(TokenHead):
    """Scores of hidden tokens, and by ``order_scores`` of the order of two sentences."""

    offers = TokenHead.offers | {"order_scores", "pooled"}

    @dataclasses.dataclass(kw_only=True)
    class Config(TokenHead.Config):
        """Knobs of the head."""

        tied: bool = True
        """Whether the head reuses the token table (weight tying)."""
        activation: Activation = "gelu"
        """Exact GELU, its tanh approximation, or ReLU, for the tokens."""

    def __init__(self, config: Any, *, norm: Callable[..., nn.Module], **parent: Any) -> None:
        super().__init__(config, tied=config.tied, bias=True, norm=norm, **parent)
        self.transform = Transform(self.dim, norm=norm, activation=config.activation)
        self.pooler = Pooler(self.dim)
        self.order = nn.Linear(self.dim, 2)

    def states(self, hidden: Tensor) -> Tensor:
        """(..., D) hidden states through the layer and the norm."""
        return self.transform(hidden)

    def pooled(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """(B, D) the first token's hidden state through the pooler."""
        return self.pooler(pooled(hidden_BTD, valid_BT, "first", extra=self.embedding.extra))

    def order_scores(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """(B, 2) scores of "follows" and of "comes from elsewhere"."""
        return self.order(self.pooled(hidden_BTD, valid_BT))
