"""Scores over the vocabulary, tied to the token table; change what ``states`` says.

    scores = E h

No parameters of its own where it is tied.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from zoo.contracts.head import TokenHead

__all__ = ["Mine"]


class Mine(TokenHead):
    """D width, V vocabulary."""

    @dataclasses.dataclass(kw_only=True)
    class Config(TokenHead.Config):
        """Knobs: a type, a default, a docstring."""

        tied: bool = True
        """Whether the head reuses the token table."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, tied=config.tied, bias=False, **parent)

    def states(self, hidden: Tensor) -> Tensor:
        """(..., D) what the weight multiplies, from (..., D)."""
        return hidden
