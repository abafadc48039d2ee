"""AdamW: Adam's steps, with weight decay apart from the gradient.

    m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
    p = p - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) - lr decay p

Loshchilov and Hutter 2019, "Decoupled weight decay regularization" (arXiv 1711.05101). Only matrices decay;
biases and norms don't. The defaults of ``betas`` are those of GPT-3 (Brown et al. 2020, appendix B). Cost: two
numbers of state a parameter.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import final

import torch
from torch import nn

from zoo.contracts.optimizer import Optimizer, decay_groups

__all__ = ["AdamW"]


@final
class AdamW(Optimizer):
    """``torch.optim.AdamW`` over decaying and other parameters."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Optimizer.Config):
        """Adam's constants."""

        betas: tuple[float, float] = (0.9, 0.95)
        """Decay rates b1 and b2 of the averages of the gradient and of its square."""
        eps: float = 1e-8
        """Added to the root of the average square."""
        fused: bool | None = None
        """One kernel for the whole step; null means wherever torch has it for the parameters."""

        def __post_init__(self) -> None:
            super().__post_init__()
            if not all(0 <= rate < 1 for rate in self.betas):
                raise ValueError(f"betas are {list(self.betas)}; each must be from 0 to below 1")
            if not 0 <= self.eps < math.inf:
                raise ValueError(f"eps is {self.eps}; it must be a finite number of at least 0")

    def make(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        """The torch optimizer over named parameters."""
        config = self.config
        groups = [group for group in decay_groups(parameters, config.weight_decay) if group["params"]]
        fused = all(map(_can_fuse, groups)) if config.fused is None else config.fused
        return torch.optim.AdamW(groups, lr=config.lr, betas=tuple(config.betas), eps=config.eps, fused=fused)


def _can_fuse(group: dict[str, list[nn.Parameter]]) -> bool:
    return all(p.is_floating_point() and p.device.type in ("cpu", "cuda", "xpu", "mps") for p in group["params"])
