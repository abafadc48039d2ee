"""How fast heads forget at first, in networks whose decay is exp(-rate * step): Mamba-2 and those after it."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_rates(parameter: Tensor, generator: torch.Generator) -> None:
    """Fill with logarithms of rates that are uniform from 1 to 16."""
    parameter.uniform_(1.0, 16.0, generator=generator).log_()


def step_biases(parameter: Tensor, generator: torch.Generator, low: float = 1e-3, high: float = 1e-1) -> None:
    """Fill with what softplus turns into steps whose logarithms are uniform from ``low`` to ``high``."""
    step = parameter.uniform_(math.log(low), math.log(high), generator=generator).exp()
    parameter.copy_(step + (-(-step).expm1()).log())
