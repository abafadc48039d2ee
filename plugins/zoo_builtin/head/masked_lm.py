"""BERT's head for hidden tokens: a layer, a norm, then the token table with a bias of its own.

    scores = E norm(f(W h + c)) + b

Devlin et al. 2019, arXiv:1810.04805, section 3.1 (article, section 8). D^2 + D parameters, those of the norm, and V.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

from torch import Tensor, nn

from zoo.contracts.head import TokenHead
from zoo.nn.masked import Activation, Transform

__all__ = ["MaskedLM"]


@final
class MaskedLM(TokenHead):
    """Scores of BERT and RoBERTa for tokens that were hidden."""

    @dataclasses.dataclass(kw_only=True)
    class Config(TokenHead.Config):
        """Knobs of the head."""

        tied: bool = True
        """Whether the head reuses the token table (weight tying)."""
        activation: Activation = "gelu"
        """Exact GELU, its tanh approximation, or ReLU."""

    def __init__(self, config: Any, *, norm: Callable[..., nn.Module], **parent: Any) -> None:
        super().__init__(config, tied=config.tied, bias=True, norm=norm, **parent)
        self.transform = Transform(self.dim, norm=norm, activation=config.activation)

    def states(self, hidden: Tensor) -> Tensor:
        """(..., D) hidden states through the layer and the norm."""
        return self.transform(hidden)
