"""A gated MLP: one linear layer, passed through a nonlinearity, multiplies another.

    GLU(x)   = W_2 (sigmoid(W_g x) * W_1 x)        Bilinear(x) = W_2 (W_g x * W_1 x)
    ReGLU(x) = W_2 (relu(W_g x) * W_1 x)           GEGLU(x)    = W_2 (gelu(W_g x) * W_1 x)
    SwiGLU(x) = W_2 (silu(W_g x) * W_1 x)

Shazeer 2020, "GLU variants improve transformer", equations 5 and 6, arXiv:2002.05202; T5 v1.1 has the tanh
approximation of GELU. SwiGLU, the choice of PaLM and Llama, has its own name as well, ``swiglu``. Three matrices of
8/3 D hidden units cost what two of 4 D do.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, final

from torch import Tensor

from zoo.nn.activations import activate
from zoo.nn.gated import GatedFeedForward

__all__ = ["Gated"]


@final
class Gated(GatedFeedForward):
    """The feed-forward network of T5 v1.1."""

    @dataclasses.dataclass(kw_only=True)
    class Config(GatedFeedForward.Config):
        """Knobs of the gated MLP."""

        activation: Literal["gelu", "gelu_tanh", "relu", "silu", "sigmoid", "none"] = "gelu_tanh"
        """What the gate goes through: GEGLU, with the exact GELU or its tanh approximation, ReGLU, SwiGLU, GLU or
        Bilinear."""

    def activate(self, gate_BTF: Tensor) -> Tensor:
        """The nonlinearity that the config names."""
        return activate(self.config.activation, gate_BTF)
