"""Scores over the vocabulary, by the token table again or a matrix of its own.

    scores = W h (+ b), W = the token table where it is tied

Press and Wolf 2017, arXiv:1608.05859 (article, section 5). No parameters where it is tied, V D otherwise.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

from torch import Tensor

from zoo.contracts.head import TokenHead

__all__ = ["LanguageModel"]


@final
class LanguageModel(TokenHead):
    """The head of GPT-2, Llama, T5 and BART."""

    @dataclasses.dataclass(kw_only=True)
    class Config(TokenHead.Config):
        """Knobs of the head."""

        tied: bool = True
        """Whether the head reuses the token table (weight tying)."""
        bias: bool = False
        """Whether each token has a bias."""
        scale: bool = False
        """Whether hidden states are divided by sqrt(D), as in T5 where it is tied."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, tied=config.tied, bias=config.bias, **parent)

    def states(self, hidden: Tensor) -> Tensor:
        """(..., D), scaled where the config says so."""
        return hidden * self.dim**-0.5 if self.config.scale else hidden
