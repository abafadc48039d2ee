"""A linear layer for each group of rows: what experts, each with tokens of its own, are made of.

An operation of its own, because the sizes of the groups are data: a compiler sees one operation of known shape, and
``zoo info`` counts the rows that there are, not those rows times the groups.

Dimension legend: A rows, sorted by group; E groups; D inputs; F outputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula


class GroupedLinear(nn.Module):
    """y = W_e x for the rows of group e, without bias.

    Args:
        groups: number of groups E.
        inputs: size D of a row.
        outputs: size F of a row of the result.
    """

    begins_as_linear = True

    def __init__(self, groups: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5  # as torch begins a linear layer
        self.weight = nn.Parameter(torch.empty(groups, outputs, inputs).uniform_(-bound, bound))

    def forward(self, x_AD: Tensor, ends_E: Tensor) -> Tensor:
        """(A, F); group e is the rows from ``ends_E[e - 1]`` to ``ends_E[e]``, and rows behind the last give 0."""
        x_AD, weight_EFD = _cast(x_AD, self.weight)
        return grouped_linear(x_AD, weight_EFD, ends_E)


def _cast(*tensors: Tensor) -> list[Tensor]:
    """What autocast does for a linear layer."""
    kind = tensors[0].device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return list(tensors)
    narrow = torch.get_autocast_dtype(kind)
    return [tensor if tensor.dtype == torch.float64 else tensor.to(narrow) for tensor in tensors]


def _linear(x_AD: Tensor, weight_EFD: Tensor, ends_E: Tensor) -> Tensor:
    """(A, F) rows times the matrix of their group."""
    if _is_fast(x_AD, weight_EFD):
        out_AF = F.grouped_mm(x_AD, weight_EFD.transpose(1, 2), offs=ends_E.to(torch.int32))
        behind_A = torch.arange(len(x_AD), device=x_AD.device) >= ends_E[-1]
        return out_AF.masked_fill(behind_A[:, None], 0.0)  # the kernel leaves them as they were in memory
    out_AF = x_AD.new_zeros(len(x_AD), weight_EFD.shape[1])
    for group, rows in _groups(ends_E):
        torch.mm(x_AD[rows], weight_EFD[group].T, out=out_AF[rows])
    return out_AF


def _outer(g_AF: Tensor, x_AD: Tensor, ends_E: Tensor) -> Tensor:
    """(E, F, D) sums over the rows of each group of g x^T, the gradient of its matrix."""
    if _is_fast(g_AF, x_AD):
        return F.grouped_mm(g_AF.T, x_AD, offs=ends_E.to(torch.int32)).contiguous()
    out_EFD = x_AD.new_zeros(len(ends_E), g_AF.shape[1], x_AD.shape[1])
    for group, rows in _groups(ends_E):
        torch.mm(g_AF[rows].T, x_AD[rows], out=out_EFD[group])
    return out_EFD


def _groups(ends_E: Tensor) -> Iterator[tuple[int, slice]]:
    """Groups that have rows; one wait for the device."""
    for group, (begin, end) in enumerate(itertools.pairwise([0, *ends_E.tolist()])):
        if end > begin:
            yield group, slice(begin, end)


def _is_fast(*tensors: Tensor) -> bool:
    """Whether torch has one kernel for all groups: bfloat16 on a GPU from Ampere on, rows of whole 16 bytes."""
    return all(
        tensor.is_cuda
        and tensor.dtype == torch.bfloat16
        and all(size % 8 == 0 for size in tensor.shape[1:])
        and (tensor.is_contiguous() or (tensor.ndim == 3 and tensor.mT.is_contiguous()))
        for tensor in tensors
    ) and torch.cuda.get_device_capability(tensors[0].device) >= (8, 0)


def _setup(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, g_AF: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x_AD, weight_EFD, ends_E = ctx.saved_tensors
    of_x, of_weight, _ = ctx.needs_input_grad
    g_AF = g_AF.contiguous()
    return (
        grouped_linear(g_AF, weight_EFD.transpose(1, 2), ends_E) if of_x else None,
        grouped_outer(g_AF, x_AD, ends_E) if of_weight else None,
        None,
    )


# not torch.library.custom_op, whose first call imports the compiler, for seconds
torch.library.define("zoo::grouped_linear", "(Tensor x, Tensor weight, Tensor ends) -> Tensor")
torch.library.impl("zoo::grouped_linear", "default", _linear)
torch.library.register_fake(
    "zoo::grouped_linear", lambda x_AD, weight_EFD, ends_E: x_AD.new_empty(x_AD.shape[0], weight_EFD.shape[1])
)
torch.library.register_autograd("zoo::grouped_linear", _backward, setup_context=_setup)
torch.library.define("zoo::grouped_outer", "(Tensor g, Tensor x, Tensor ends) -> Tensor")
torch.library.impl("zoo::grouped_outer", "default", _outer)
torch.library.register_fake(
    "zoo::grouped_outer", lambda g_AF, x_AD, ends_E: x_AD.new_empty(ends_E.shape[0], g_AF.shape[1], x_AD.shape[1])
)
grouped_linear, grouped_outer = torch.ops.zoo.grouped_linear, torch.ops.zoo.grouped_outer


@register_flop_formula([grouped_linear, grouped_outer])
def _flops(one: tuple[int, ...], other: tuple[int, ...], *_: Any, **__: Any) -> int:
    """Twice the rows times the inputs times the outputs."""
    return 2 * one[0] * one[1] * other[-2 if len(other) == 3 else -1]
