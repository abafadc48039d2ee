"""Contract of an optimizer: parameter groups in, a ``torch.optim.Optimizer`` out."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from zoo.config import Part

if TYPE_CHECKING:
    import torch
    from torch import nn

    from zoo.contracts.architecture import Architecture


class Optimizer(Part, ABC):
    """Makes a torch optimizer for a model. Made as ``Optimizer(config)``."""

    @dataclasses.dataclass(kw_only=True)
    class Config:
        """Knobs that every optimizer has."""

        lr: float = 1e-3
        """Peak learning rate; the schedule multiplies it."""
        weight_decay: float = 0.1
        """Decoupled weight decay of matrices; vectors (biases, norms) have none."""
        layer_decay: float | None = None
        """Factor of the learning rate from a layer to the one before it, at most 1: the head learns at ``lr``, the last
        block at ``lr`` times this, the embedding slowest. Null is one rate for all. For fine-tuning (BEiT: 0.65)."""

        def __post_init__(self) -> None:
            if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
                raise ValueError(f"layer_decay is {self.layer_decay}; it must be above 0 and at most 1, or null")
            for name in ("lr", "weight_decay"):
                value = getattr(self, name)
                if not 0 <= value < math.inf:
                    raise ValueError(f"{name} is {value}; it must be a finite number of at least 0")

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def make(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        """The torch optimizer over named parameters, all at the same learning rate."""

    def over(self, model: Architecture) -> torch.optim.Optimizer:
        """The torch optimizer over a model; with ``layer_decay`` its learning rates go by depth.

            lr of depth d = lr * layer_decay^(layers + 1 - d)

        Clark et al. 2020, "ELECTRA", appendix B (arXiv:2003.10555); BEiT's counting, with the embeddings at 0 and
        the head behind the blocks (Bao et al. 2022, arXiv:2106.08254).
        """
        made = self.make(model.named_parameters())
        if self.config.layer_decay is not None:
            made.param_groups[:] = [part for group in made.param_groups for part in self._by_depth(group, model)]
        return made

    def _by_depth(self, group: dict[str, Any], model: Architecture) -> Iterator[dict[str, Any]]:
        """A group's parameters in groups of one depth, from the first on."""
        top = sum(1 for _ in model.block_modules()) + 1
        depths = {id(parameter): model.depths()[name] for name, parameter in model.named_parameters()}
        for depth in range(top + 1):
            held = [parameter for parameter in group["params"] if depths[id(parameter)] == depth]
            if held:
                yield {**group, "params": held, "lr": group["lr"] * self.config.layer_decay ** (top - depth)}


def decay_groups(parameters: Iterable[tuple[str, nn.Parameter]], weight_decay: float) -> list[dict[str, Any]]:
    """Two parameter groups: matrices and larger decay, vectors don't (GPT-2's and BERT's usual rule)."""
    trainable = [parameter for _, parameter in parameters if parameter.requires_grad]
    return [
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
