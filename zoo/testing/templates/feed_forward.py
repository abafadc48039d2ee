"""Two linear layers with a squared ReLU between them; change what ``forward`` says.

    FF(x) = W_2 relu(W_1 x)^2, D -> 4D -> D

So et al. 2021, "Primer", arXiv:2109.08668.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.feed_forward import FeedForward
from zoo.contracts.values.notes import Notes
from zoo.initialization import branch_output

__all__ = ["Mine"]


class Mine(FeedForward):
    """The same function of every position."""

    @dataclasses.dataclass(kw_only=True)
    class Config(FeedForward.Config):
        """Knobs; each has a docstring, which the tables show."""

        expansion: float = 4.0
        """Hidden units for each element of the width."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        hidden = round(self.dim * config.expansion)
        self.up = nn.Linear(self.dim, hidden)
        self.down = branch_output(nn.Linear(hidden, self.dim))

    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Notes | None = None) -> Tensor:
        """(B, T, D) from (B, T, D)."""
        return self.down(F.relu(self.up(x_BTD)).square())
