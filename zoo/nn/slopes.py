"""Slopes of ALiBi's heads, shared by the schemes that take something off for distance.

Dimension legend: N heads.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def slopes(heads: int, device: torch.device, *, exponent: float = 8.0) -> Tensor:
    """(N,) float64: of the greatest power of two P within N, 2^(-exponent n / P); then every other one of 2 P heads.

    The order is that of the published code: the heads beyond P come last, the steepest first.
    """
    power = 2 ** math.floor(math.log2(heads))
    head = torch.arange(heads, dtype=torch.float64, device=device)
    return 2 ** (-exponent / power * torch.where(head < power, head + 1, head - power + 0.5))
