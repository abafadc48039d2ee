"""A gated MLP: one linear layer, passed through a nonlinearity, multiplies another.

    GEGLU(x) = W_2 (gelu(W_g x) * W_1 x);  ReGLU, GLU and Bilinear likewise, with relu, a sigmoid or nothing

Shazeer 2020, "GLU variants improve transformer", equations 5 and 6, arXiv:2002.05202; T5 v1.1 has the tanh
approximation of GELU. The variant with SiLU is ``swiglu``. Three matrices of 8/3 D hidden units cost what two of
4 D do.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, final

import torch.nn.functional as F
from torch import Tensor

from zoo.nn.gated import GatedFeedForward

__all__ = ["Gated"]


@final
class Gated(GatedFeedForward):
    """The feed-forward network of T5 v1.1."""

    @dataclasses.dataclass(kw_only=True)
    class Config(GatedFeedForward.Config):
        """Knobs of the gated MLP."""

        activation: Literal["gelu", "gelu_tanh", "relu", "sigmoid", "none"] = "gelu_tanh"
        """What the gate goes through: GEGLU, with the exact GELU or its tanh approximation, ReGLU, GLU or Bilinear."""

    def activate(self, gate_BTF: Tensor) -> Tensor:
        """The nonlinearity that the config names."""
        match self.config.activation:
            case "relu":
                return F.relu(gate_BTF)
            case "sigmoid":
                return F.sigmoid(gate_BTF)
            case "none":
                return gate_BTF
        return F.gelu(gate_BTF, approximate="tanh" if self.config.activation == "gelu_tanh" else "none")
