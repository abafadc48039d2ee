"""Where an answer begins and where it ends: two scores for every token.

    p(begin = t) = softmax over t of (w_1 h_t + b_1), p(end = t) likewise

Devlin et al. 2019, arXiv:1810.04805, section 4.2. 2 D + 2 parameters.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.head import Head

__all__ = ["Span"]


@final
class Span(Head):
    """Scores of the first and the last token of an answer."""

    offers = frozenset({"span_scores"})

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.scores = nn.Linear(self.dim, 2)

    def forward(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """(B, T, 2) scores; padding has the lowest number there is, so that a softmax over the tokens gives it 0."""
        scores_BT2 = self.scores(hidden_BTD)
        if valid_BT is None:
            return scores_BT2
        return scores_BT2.masked_fill(~valid_BT[..., None], torch.finfo(scores_BT2.dtype).min)
