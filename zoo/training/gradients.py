"""Norm and clipping of a gradient whose parts may be sharded over different device meshes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm


class Gradient:
    """The gradient of a model's parameters.

    torch's own ``clip_grad_norm_`` fails on a mix of plain and sharded tensors, as tensor parallelism makes.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        groups: dict[Any, list[nn.Parameter]] = {}
        for parameter in parameters:
            mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
            groups.setdefault(mesh, []).append(parameter)
        self._groups: Sequence[list[nn.Parameter]] = list(groups.values())

    def norm(self) -> Tensor:
        """Scalar 2-norm over all parameters and ranks."""
        norms = [_whole(get_total_norm(_gradients(group))) for group in self._groups]
        if len(norms) == 1:
            return norms[0]
        return torch.stack([norm.double() for norm in norms]).square().sum().sqrt()

    def scale(self, factor: float) -> None:
        """Multiply by a number."""
        for group in self._groups:
            torch._foreach_mul_(_gradients(group), factor)


def clip_factor(norm: Tensor, largest: float) -> Tensor:
    """What ``torch.nn.utils.clip_grad_norm_`` multiplies a gradient of this norm by, at most 1."""
    return (largest / (norm + 1e-6)).clamp(max=1.0)


def _gradients(parameters: list[nn.Parameter]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _whole(norm: Tensor) -> Tensor:
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
