"""A small network turns distance, as a part of how far the query could look, into a bias for each head (FIRE).

    bias[n, t, s] = f(log(1 + c |p_t - p_s|) / log(1 + c max(p_t, L)))[n],  f(x) = W_2 ReLU(W_1 x + b_1) + b_2

Acts on scores; any length, because what f is given stays within 0 and 1. c and the threshold L are learned: below L
the bias goes by distance alone. Computed once a forward pass, hidden x T x S numbers.
Li et al. 2024, "Functional interpolation for relative positions improves long context transformers", section 3,
arXiv:2310.04418. In an encoder, a key ahead by more than p_t gives f more than 1.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call, no_autocast

__all__ = ["Fire"]


@final
class Fire(Position):
    """Progressive interpolation with a learned threshold."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the network."""

        hidden: int = 32
        """Width of the hidden layer."""
        threshold: float = 512.0
        """L at the start, in positions."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.threshold <= 0:
            raise ValueError(f"threshold must be above 0, got {config.threshold}")
        self.c, self.stretch = (nn.Parameter(torch.empty(1)) for _ in range(2))
        self.up, self.down = nn.Linear(1, config.hidden), nn.Linear(config.hidden, self.heads)

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """c is 0.1, and L is what the knob says."""
        del generator
        parameter.fill_(0.1 if name == "c" else 1.0)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, N, T, S) the bias, in float32 or wider."""
        wide = torch.promote_types(self.c.dtype, torch.float32)
        distance_BTS = (at_BTA[:, :, None, 0] - keys_BSA[:, None, :, 0]).abs().to(wide)
        c, threshold = self.c.to(wide).abs(), (self.config.threshold * self.stretch.to(wide)).abs()
        whole_BT1 = torch.maximum(at_BTA.to(wide), threshold)
        part_BTS = (c * distance_BTS).log1p() / ((c * whole_BT1).log1p() + 1e-6)
        with no_autocast(at_BTA.device):
            return _linear(self.down, _linear(self.up, part_BTS[..., None]).relu()).permute(0, 3, 1, 2)

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        """(1|B, N, T, S), the same for all queries and keys."""
        del q_BNTH, k_BNSH, call
        return prepared


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """The layer in the input's dtype."""
    return F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))
