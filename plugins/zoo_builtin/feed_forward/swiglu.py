"""A gated MLP: one linear layer, passed through SiLU, multiplies another.

    SwiGLU(x) = W_2 (silu(W_g x) * W_1 x)

Shazeer 2020, "GLU variants improve transformer", equation 6, arXiv:2002.05202. Three matrices of 8/3 D hidden units
cost what two of 4 D do.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.feed_forward import FeedForward
from zoo.contracts.values.notes import Notes
from zoo.initialization import branch_output

__all__ = ["SwiGLU"]


@final
class SwiGLU(FeedForward):
    """The feed-forward network of PaLM and Llama."""

    @dataclasses.dataclass(kw_only=True)
    class Config(FeedForward.Config):
        """Knobs of SwiGLU."""

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

    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Notes | None = None) -> Tensor:
        """(B, T, D) from (B, T, D)."""
        return self.down(F.silu(self.gate(x_BTD)) * self.up(x_BTD))
