"""Initial values, each parameter's a pure function of (seed, its name).

Two models that share a part start with the same values in it, whatever else differs; a model made on the meta
device and filled later equals one made in place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class Initialized(Protocol):
    """A module with parameters of its own that says how they begin."""

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Fill the parameter called ``name`` in place, randomness from ``generator`` only."""


@runtime_checkable
class Scales(Protocol):
    """A module that says how large the weights beside it begin, as a residual arrangement does of its branches."""

    def initial_factor(self, name: str) -> float | None:
        """Factor on the deviation of a weight, ``attention.value.weight`` for instance; ``None`` leaves it as it is."""


class NotFilledError(TypeError):
    """A parameter that nobody gave an initial value."""


Layer = TypeVar("Layer", bound=nn.Module)


def branch_output(layer: Layer) -> Layer:
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
    ``branch_std``, biases zero; so are those of a module that says ``begins_as_linear = True``. Where a neighbour has
    a factor (``Scales``), both deviations are ``std`` times it. A module with an ``initial`` method fills its own
    parameters.

    Raises:
        NotFilledError: a module with parameters of its own and no way to fill them, or one that leaves some out.
    """
    scaling = {path.rpartition(".")[0]: module for path, module in model.named_modules() if isinstance(module, Scales)}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            value = torch.full(parameter.shape, torch.nan, dtype=torch.float32)
            generator = generator_for(seed, f"{path}.{name}")
            factor = _factor(scaling, f"{path}.{name}")
            inner, outer = (std, branch_std) if factor is None else (std * factor, std * factor)
            _fill(module, name, value, generator, inner, outer)
            if value.isnan().any():
                raise NotFilledError(f"{type(module).__name__}.initial left {name} unfilled, or filled it with NaN")
            parameter.copy_(value)


def _factor(scaling: Mapping[str, Scales], path: str) -> float | None:
    """What the nearest module that has a say makes of a parameter."""
    names = path.split(".")
    for depth in range(len(names) - 1, -1, -1):
        if (module := scaling.get(".".join(names[:depth]))) is not None:
            return module.initial_factor(".".join(names[depth:]))
    return None


def _fill(
    module: nn.Module, name: str, value: Tensor, generator: torch.Generator, std: float, branch_std: float
) -> None:
    if isinstance(module, Initialized):
        module.initial(name, value, generator)
    elif isinstance(module, nn.Linear | nn.Embedding) or getattr(module, "begins_as_linear", False):
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
