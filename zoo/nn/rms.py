"""Dividing vectors by their root mean square inside a layer."""

from __future__ import annotations

from torch import Tensor, nn


def normalized(x: Tensor, norm: nn.RMSNorm) -> Tensor:
    """The same dtype and shape, normalized in the precision of the norm's factors: under autocast that is float32."""
    wide = x if norm.weight is None else x.to(norm.weight.dtype)
    return norm(wide).to(x.dtype)
