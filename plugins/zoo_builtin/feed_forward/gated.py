"""A gated MLP: one linear layer, passed through a nonlinearity, multiplies another.

    GEGLU(x) = W_2 (gelu(W_g x) * W_1 x);  ReGLU, GLU and Bilinear likewise, with relu, a sigmoid or nothing

Shazeer 2020, "GLU variants improve transformer", equations 5 and 6, arXiv:2002.05202; T5 v1.1 has the tanh
approximation of GELU. The variant with SiLU is ``swiglu``. Three matrices of 8/3 D hidden units cost what two of
4 D do.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.feed_forward import FeedForward
from zoo.contracts.values.notes import Notes
from zoo.initialization import branch_output

__all__ = ["Gated"]


@final
class Gated(FeedForward):
    """The feed-forward network of T5 v1.1."""

    @dataclasses.dataclass(kw_only=True)
    class Config(FeedForward.Config):
        """Knobs of the gated MLP."""

        hidden: int | None = None
        """Hidden units; null means 8/3 of the width, rounded up to ``multiple_of``."""
        multiple_of: int = 8
        """What the default number of hidden units is a multiple of."""
        activation: Literal["gelu", "gelu_tanh", "relu", "sigmoid", "none"] = "gelu_tanh"
        """What the gate goes through: GEGLU, with the exact GELU or its tanh approximation, ReGLU, GLU or Bilinear."""
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
        return self.down(self._activate(self.gate(x_BTD)) * self.up(x_BTD))

    def _activate(self, x_BTF: Tensor) -> Tensor:
        match self.config.activation:
            case "relu":
                return F.relu(x_BTF)
            case "sigmoid":
                return F.sigmoid(x_BTF)
            case "none":
                return x_BTF
        return F.gelu(x_BTF, approximate="tanh" if self.config.activation == "gelu_tanh" else "none")
