"""Turning pairs of elements by angles, shared by the rotary schemes.

Dimension legend: B batch, T tokens, N heads, H head size, P pairs.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Pairs = Literal["half", "interleaved"]


def turned(x_BNTH: Tensor, cos_B1TP: Tensor, sin_B1TP: Tensor, pairs: Pairs) -> Tensor:
    """(B, N, T, H) with its first 2 P elements turned, computed in float32 or wider and given back in its dtype.

    Args:
        x_BNTH: queries or keys.
        cos_B1TP, sin_B1TP: cosine and sine of each pair's angle.
        pairs: which elements turn together: i with i + P, or 2i with 2i + 1.
    """
    wide = torch.promote_types(x_BNTH.dtype, torch.float32)
    cos, sin = cos_B1TP.to(wide), sin_B1TP.to(wide)
    rotated = 2 * cos.shape[-1]
    first, rest = x_BNTH[..., :rotated].to(wide), x_BNTH[..., rotated:]
    half = pairs == "half"
    a, b = first.chunk(2, -1) if half else (first[..., 0::2], first[..., 1::2])
    parts = (a * cos - b * sin, b * cos + a * sin)
    first = torch.cat(parts, -1) if half else torch.stack(parts, -1).flatten(-2)
    return torch.cat([first.to(x_BNTH.dtype), rest], -1)
