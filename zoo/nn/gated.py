"""What gated feed-forward networks share; a variant says what its gate goes through."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any

from torch import Tensor, nn

from zoo.contracts.feed_forward import FeedForward
from zoo.contracts.values.notes import Notes
from zoo.initialization import branch_output


class GatedFeedForward(FeedForward):
    """W_2 (activate(W_g x) * W_1 x), D -> hidden -> D."""

    @dataclasses.dataclass(kw_only=True)
    class Config(FeedForward.Config):
        """Knobs of a gated MLP."""

        hidden: int | None = None
        """Hidden units; null means 8/3 of the width, rounded up to ``multiple_of``."""
        multiple_of: int = 8
        """What the default number of hidden units is a multiple of."""
        bias: bool = False
        """Biases in all three layers."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        hidden = config.hidden or -(-8 * self.dim // (3 * config.multiple_of)) * config.multiple_of
        self.gate = nn.Linear(self.dim, hidden, bias=config.bias)
        self.up = nn.Linear(self.dim, hidden, bias=config.bias)
        self.down = branch_output(nn.Linear(hidden, self.dim, bias=config.bias))

    @abstractmethod
    def activate(self, gate_BTF: Tensor) -> Tensor:
        """What the gate goes through, (B, T, F) from (B, T, F)."""

    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Notes | None = None) -> Tensor:
        """(B, T, D) from (B, T, D)."""
        return self.down(self.activate(self.gate(x_BTD)) * self.up(x_BTD))
