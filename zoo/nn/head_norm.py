"""A norm of each head by itself, with a scale and a shift of each element: what papers call group norm.

Dimension legend: B batch, T tokens, N heads, V value size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class HeadNorm(nn.Module):
    """Mean 0 and variance 1 over the elements of a head.

    Args:
        heads: N.
        size: V.
        eps: added to the variance.
    """

    def __init__(self, heads: int, size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(heads * size))
        self.bias = nn.Parameter(torch.empty(heads * size))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """As a layer norm begins."""
        parameter.fill_(0.0 if name == "bias" else 1.0)

    def forward(self, x_BNTV: Tensor) -> Tensor:
        """(B, N, T, V) in the dtype of the input, float32 or wider for what recurrences give."""
        weight, bias = (x.to(x_BNTV.dtype).unflatten(0, (-1, 1, x_BNTV.shape[-1])) for x in (self.weight, self.bias))
        return F.layer_norm(x_BNTV, x_BNTV.shape[-1:], eps=self.eps) * weight + bias
