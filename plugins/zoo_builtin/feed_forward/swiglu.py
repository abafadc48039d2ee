"""A gated MLP: one linear layer, passed through SiLU, multiplies another.

    SwiGLU(x) = W_2 (silu(W_g x) * W_1 x)

Shazeer 2020, "GLU variants improve transformer", equation 6, arXiv:2002.05202. Three matrices of 8/3 D hidden units
cost what two of 4 D do.
"""

from __future__ import annotations

from typing import final

import torch.nn.functional as F
from torch import Tensor

from zoo.nn.gated import GatedFeedForward

__all__ = ["SwiGLU"]


@final
class SwiGLU(GatedFeedForward):
    """The feed-forward network of PaLM and Llama."""

    def activate(self, gate_BTF: Tensor) -> Tensor:
        """SiLU."""
        return F.silu(gate_BTF)
