"""Norm and clipping: the bits of torch's own, and a NaN that stays one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from zoo.training.gradients import Gradient, clip_factor


def parameters(*values: list[float]) -> list[nn.Parameter]:
    made = [nn.Parameter(torch.zeros(len(value))) for value in values]
    for parameter, value in zip(made, values, strict=True):
        parameter.grad = torch.tensor(value)
    return made


def test_the_norm_is_over_all_parameters_and_skips_those_without_a_gradient() -> None:
    held = [*parameters([3.0], [0.0, 4.0]), nn.Parameter(torch.zeros(2))]
    assert Gradient(held).norm().item() == 5.0


@pytest.mark.parametrize("largest", [0.1, 1.0, 2.5, 100.0])
def test_clipping_gives_the_bits_of_torchs_own(largest: float) -> None:
    numbers = torch.Generator().manual_seed(1)
    values = [torch.randn(size, generator=numbers).tolist() for size in (1, 7, 50)]
    mine, theirs = parameters(*values), parameters(*values)
    norm = Gradient(mine).norm()
    factor = clip_factor(norm, largest).item()
    if factor < 1:
        Gradient(mine).scale(factor)
    assert torch.equal(norm, nn.utils.clip_grad_norm_(theirs, largest))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(mine, theirs, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_is_reported_as_it_is(bad: float) -> None:
    norm = Gradient(parameters([1.0], [bad])).norm().item()
    assert math.isnan(norm) if math.isnan(bad) else norm == bad
