"""Nonlinearities by name, which feed-forward networks and heads share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch.nn.functional as F
from torch import Tensor


def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)^2: So et al. 2021, "Primer", arXiv:2109.08668."""
    return F.relu(x).square()


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "squared_relu": squared_relu,
    "silu": F.silu,
    "sigmoid": F.sigmoid,
    "none": lambda x: x,
}
"""Exact GELU and its tanh approximation differ by up to 4.7e-4."""


def activate(name: str, x: Tensor) -> Tensor:
    """The nonlinearity of that name, element by element."""
    return ACTIVATIONS[name](x)
