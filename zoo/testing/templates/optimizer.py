"""Gradient descent with momentum; change what ``make`` says.

    v <- momentum v + g,  w <- w - lr v

Any ``torch.optim.Optimizer`` will do. The schedule multiplies ``lr``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import torch
from torch import nn

from zoo.contracts.optimizer import Optimizer, decay_groups

__all__ = ["Mine"]


class Mine(Optimizer):
    """Matrices decay, vectors don't."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Optimizer.Config):
        """Knobs beside ``lr`` and ``weight_decay``."""

        momentum: float = 0.9
        """Share of the last step that goes on."""

    def make(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        """The torch optimizer over named parameters."""
        groups = decay_groups(parameters, self.config.weight_decay)
        return torch.optim.SGD(groups, lr=self.config.lr, momentum=self.config.momentum)
