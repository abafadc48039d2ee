"""Initial values, each parameter's a pure function of (seed, its name).

Two models that share a part start with the same values in it, whatever else differs; a model made on the meta
device and filled later equals one made in place.
"""

from __future__ import annotations

import hashlib
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class Initialized(Protocol):
    """A module with parameters of its own that says how they begin."""

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Fill the parameter called ``name`` in place, randomness from ``generator`` only."""


class NotFilledError(TypeError):
    """A parameter that nobody gave an initial value."""


def branch_output(layer: nn.Linear) -> nn.Linear:
    """Mark the last layer of a residual branch: GPT-2 starts these smaller, by 1 / sqrt(number of branches)."""
    layer.is_branch_output = True  # type: ignore[assignment]
    return layer


def generator_for(seed: int, name: str) -> torch.Generator:
    """A generator on the CPU that belongs to (seed, name)."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@torch.no_grad()
def initialize(model: nn.Module, seed: int, *, std: float, branch_std: float) -> None:
    """Fill all parameters of a model.

    Linear and embedding weights are normal with ``std``, the last linear layers of residual branches with
    ``branch_std``, biases zero. A module with an ``initial`` method fills its own parameters.

    Raises:
        NotFilledError: a module with parameters of its own and no way to fill them, or one that leaves some out.
    """
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            value = torch.full(parameter.shape, torch.nan, dtype=torch.float32)
            generator = generator_for(seed, f"{path}.{name}")
            _fill(module, name, value, generator, std, branch_std)
            if value.isnan().any():
                raise NotFilledError(f"{type(module).__name__}.initial left {name} unfilled, or filled it with NaN")
            parameter.copy_(value)


def _fill(
    module: nn.Module, name: str, value: Tensor, generator: torch.Generator, std: float, branch_std: float
) -> None:
    if isinstance(module, Initialized):
        module.initial(name, value, generator)
    elif isinstance(module, nn.Linear | nn.Embedding):
        if name == "bias":
            value.zero_()
        else:
            is_output = getattr(module, "is_branch_output", False)
            value.normal_(0.0, branch_std if is_output else std, generator=generator)
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
        value.fill_(0.0 if name == "bias" else 1.0)
    else:
        raise NotFilledError(
            f"{type(module).__name__} has a parameter {name} of its own and no method "
            "initial(name, parameter, generator) that fills it"
        )
