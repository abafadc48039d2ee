"""Something is taken off each score for the distance between two patches as the crow flies, with a slope for each head.

    score(t, s) - m_n sqrt((row_t - row_s)^2 + (column_t - column_s)^2)

Acts on scores; no parameters, any grid. The slopes m_n are those of ALiBi in a row of text (``alibi``). Rows plus
columns, a distance along the streets, is ``{name: axial, scheme: alibi}``.
Fuller et al. 2023, "CROMA: remote sensing representations with contrastive radar-optical masked autoencoders",
section 3 (2D-ALiBi), arXiv:2311.00566.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call
from zoo.nn.slopes import slopes

__all__ = ["AlibiGrid"]


@final
class AlibiGrid(Position):
    """Linear in the Euclidean distance on the grid."""

    axes = 2
    relative = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the slopes."""

        exponent: float = 8.0
        """The smallest slope is 2 to minus this."""

    like: Tensor

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        # Holds nothing; its dtype says whether the model computes in float64.
        self.register_buffer("like", torch.zeros(1), persistent=False)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, N, T, S) the bias, in float32 or wider."""
        wide = torch.promote_types(self.like.dtype, torch.float32)
        square_BTS = (at_BTA[:, :, None] - keys_BSA[:, None]).square().sum(-1)
        slope_N = slopes(self.heads, at_BTA.device, exponent=self.config.exponent).to(wide)
        return -slope_N[:, None, None] * square_BTS.to(wide).sqrt()[:, None]

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        """(1|B, N, T, S), the same for all queries and keys."""
        del q_BNTH, k_BNSH, call
        return prepared
