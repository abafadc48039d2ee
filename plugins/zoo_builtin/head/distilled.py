"""Scores of classes from two class tokens, one for the labels and one for a teacher; here the mean of both.

    scores = (W_1 h_1 + b_1 + W_2 h_2 + b_2) / 2

Touvron et al. 2021, "Training data-efficient image transformers" (DeiT), section 4, arXiv:2012.12877. There the
second token learns from another model's answers in training; without a teacher, as here, both learn from the labels
through their mean, which is how distilled weights are tuned further and how they are used.
"""

from __future__ import annotations

from typing import Any, final

from torch import Tensor, nn

from zoo.contracts.head import Head

__all__ = ["Distilled"]


@final
class Distilled(Head):
    """The two classifiers of a distilled DeiT."""

    offers = frozenset({"class_scores"})
    takes = frozenset({"classes"})

    reads_front = True

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.sizes.classes is None:
            raise ValueError("classes is null, and no data filled it in")
        if self.embedding.extra < 2:
            raise ValueError(
                f"a distilled head reads two class tokens, the embedding has {self.embedding.extra}; "
                "set embedding: {name: patches, class_tokens: 2}"
            )
        self.label, self.teacher = (nn.Linear(self.dim, self.sizes.classes) for _ in range(2))

    def forward(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """(B, classes) scores of (B, T, D) hidden states."""
        del valid_BT
        return (self.label(hidden_BTD[:, 0]) + self.teacher(hidden_BTD[:, 1])) / 2
