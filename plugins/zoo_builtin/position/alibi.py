"""Something is taken off each score for distance, with a fixed slope for each head (ALiBi).

    score(t, s) - m_n |p_t - p_s|,  m_n = 2^(-8 n / N) for heads n = 1 ... N, N a power of two

Acts on scores; no parameters, any length. The slopes of other numbers of heads are those of the published code.
Symmetric, so that an encoder sees both sides; under a causal mask it is the published -m (t - s).
Press et al. 2022, "Train short, test long", section 3, arXiv:2108.12409.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call
from zoo.nn.slopes import slopes

__all__ = ["Alibi"]


@final
class Alibi(Position):
    """Linear in the distance."""

    relative = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the slopes."""

        exponent: float = 8.0
        """The smallest slope is 2 to minus this (MPT: alibi_bias_max)."""

    like: Tensor

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        # Holds nothing; its dtype says whether the model computes in float64.
        self.register_buffer("like", torch.zeros(1), persistent=False)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, N, T, S) the bias, in float32 or wider."""
        wide = torch.promote_types(self.like.dtype, torch.float32)
        distance_BTS = (at_BTA[:, :, None, 0] - keys_BSA[:, None, :, 0]).abs()
        slope_N = slopes(self.heads, at_BTA.device, exponent=self.config.exponent).to(wide)
        return -slope_N[:, None, None] * distance_BTS[:, None]

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        """(1|B, N, T, S), the same for all queries and keys."""
        del q_BNTH, k_BNSH, call
        return prepared
