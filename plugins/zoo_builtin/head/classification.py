"""One vector out of many, and from it a score for each class.

    scores = W pool(h) + b

The first token's hidden state (BERT, ViT), the mean over all that stand for an input (GAP), or the last token's
(GPT). With ``pooler`` the vector passes BERT's pooler first, tanh(W_p h + b_p) (article, section 8); with ``norm``
it is normalized first, in place of the norm at the end of the stack (``final_norm: false``), as in BEiT and MAE.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, final

from torch import Tensor, nn

from zoo.contracts.head import Head
from zoo.nn.pooling import Pooler, pooled

__all__ = ["Classification"]


@final
class Classification(Head):
    """Scores of classes."""

    offers = frozenset({"class_scores"})
    takes = frozenset({"classes"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Head.Config):
        """Knobs of the head."""

        pool: Literal["first", "mean", "last"] = "first"
        """Hidden state of the first token, the mean without padding and tokens in front, or that of the last token."""
        norm: bool = False
        """Whether the pooled vector is normalized."""
        pooler: bool = False
        """Whether a layer with tanh comes before the scores, as in BERT."""
        dropout: float = 0.0
        """Probability of dropping an element of the pooled vector."""

    def __init__(self, config: Any, *, norm: Callable[..., nn.Module], **parent: Any) -> None:
        super().__init__(config, norm=norm, **parent)
        if self.sizes.classes is None:
            raise ValueError("classes is null, and no data filled it in")
        if self.sizes.classes < 2:
            raise ValueError(f"a classification needs at least two classes, the data has {self.sizes.classes}")
        if config.pool == "first" and self.embedding.patch_size is not None and not self.embedding.extra:
            raise ValueError("pool: first reads a class token, and the embedding has none; set pool: mean")
        self.reads_front = config.pool == "first"
        self.norm = norm(dim=self.dim) if config.norm else nn.Identity()
        self.pooler = Pooler(self.dim) if config.pooler else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.scores = nn.Linear(self.dim, self.sizes.classes)

    def forward(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """(B, classes) scores of (B, T, D) hidden states."""
        one_BD = pooled(hidden_BTD, valid_BT, self.config.pool, extra=self.embedding.extra)
        return self.scores(self.dropout(self.pooler(self.norm(one_BD))))
