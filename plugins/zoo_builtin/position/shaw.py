"""A learned vector for each offset is added to the keys that a query sees, offsets clipped at a reach.

    score(t, s) = q_t (k_s + a[clip(p_s - p_t)])^T / sqrt(H),  clip to -reach ... reach

Acts on scores, reads the queries. Each query meets 2 reach + 1 vectors once, and its keys look the products up, so
that no vector is made for a pair. All heads share the vectors, and so do all layers that share the scheme
(``position`` as a list gives each its own). The paper adds a second table to the values (equation 3), which no bias
of scores can do: it is not here, and the paper's ablation found no gain in it.
Shaw et al. 2018, "Self-attention with relative position representations", section 3, equation 4, arXiv:1803.02155.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call, no_autocast

__all__ = ["Shaw"]


@final
class Shaw(Position):
    """Relative position representations of keys."""

    relative = True
    content = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the table."""

        reach: int = 16
        """Distance from which on all keys of a side share a vector."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.reach < 1:
            raise ValueError(f"reach must be at least 1, got {config.reach}")
        self.table = nn.Embedding(2 * config.reach + 1, self.size)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, T, S) int64 row of the table for each query and key."""
        ahead_BTS = keys_BSA[:, None, :, 0] - at_BTA[:, :, None, 0]
        return ahead_BTS.clamp(-self.config.reach, self.config.reach) + self.config.reach

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        """(B, N, T, S) in float32 or wider, scaled like the scores."""
        wide = torch.promote_types(q_BNTH.dtype, torch.float32)
        with no_autocast(q_BNTH.device):
            by_row_BNTR = q_BNTH.to(wide) @ self.table.weight.to(wide).T
        return by_row_BNTR.gather(-1, prepared[:, None].expand(*q_BNTH.shape[:3], -1)) * call.scale
