"""A penalty on distance, a fixed slope for each head.

    score(t, s) - m_n |p_t - p_s|,  m = 2^(-8/N), 2^(-16/N), ... for N a power of two

Press et al. 2021, arXiv:2108.12409; the slopes for other N are those of its published code. No parameters.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call

__all__ = ["Alibi"]


class Alibi(Position):
    """Symmetric, so that an encoder sees both sides; under a causal mask it is the published -m (i - j)."""

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, N, T, S) in float32."""
        distance = (at_BTA[:, None, :, None, 0] - keys_BSA[:, None, None, :, 0]).abs()
        return -torch.tensor(slopes(self.heads), device=at_BTA.device)[:, None, None] * distance

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        """(1|B, N, T, S)."""
        return prepared


def slopes(heads: int) -> list[float]:
    """Slopes of all heads: of the next lower power of two, then every other one of the next higher."""
    power = 2 ** math.floor(math.log2(heads))
    own = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    return own if power == heads else own + slopes(2 * power)[0::2][: heads - power]
