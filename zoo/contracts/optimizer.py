"""Contract of an optimizer: parameter groups in, a ``torch.optim.Optimizer`` out."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zoo.config import Part

if TYPE_CHECKING:
    import torch
    from torch import nn


class Optimizer(Part, ABC):
    """Makes a torch optimizer for a model. Made as ``Optimizer(config)``."""

    @dataclasses.dataclass(kw_only=True)
    class Config:
        """Knobs that every optimizer has."""

        lr: float = 1e-3
        """Peak learning rate; the schedule multiplies it."""
        weight_decay: float = 0.1
        """Decoupled weight decay of matrices; vectors (biases, norms) have none."""

        def __post_init__(self) -> None:
            for name in ("lr", "weight_decay"):
                value = getattr(self, name)
                if not 0 <= value < math.inf:
                    raise ValueError(f"{name} is {value}; it must be a finite number of at least 0")

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def make(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        """The torch optimizer over named parameters."""


def decay_groups(parameters: Iterable[tuple[str, nn.Parameter]], weight_decay: float) -> list[dict[str, Any]]:
    """Two parameter groups: matrices and larger decay, vectors don't (GPT-2's and BERT's usual rule)."""
    trainable = [parameter for _, parameter in parameters if parameter.requires_grad]
    return [
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
