"""Vectors of length 1."""

from __future__ import annotations

import torch
from torch import Tensor


def unit_length(x: Tensor, eps: float = 1e-6) -> Tensor:
    """x / sqrt(|x|^2 + eps) along the last axis, in float32 or wider; 0 stays 0, with a finite gradient."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return wide * (wide.square().sum(-1, keepdim=True) + eps).rsqrt()
