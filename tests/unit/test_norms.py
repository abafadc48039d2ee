"""Norms: their equations, and how they are related."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.contracts.norm import Norm
from zoo.initialization import initialize
from zoo_builtin.norm.dynamic_tanh import DynamicTanh
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.norm.none import NoNorm
from zoo_builtin.norm.rms_norm import RMSNorm
from zoo_builtin.norm.scale_norm import ScaleNorm


def made(cls: type[Norm], dim: int = 8, **knobs: Any) -> Norm:
    module = cls(cls.Config(**knobs), dim=dim)
    initialize(module, 0, std=0.02, branch_std=0.02)
    return module.double()


X = torch.randn(2, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_layer_norm_and_rms_norm_are_their_equations() -> None:
    centred = X - X.mean(-1, keepdim=True)
    want = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(made(LayerNorm)(X), want)
    torch.testing.assert_close(made(RMSNorm)(X), X / (X.square().mean(-1, keepdim=True) + 1e-6).sqrt())


def test_scale_norm_is_its_equation() -> None:
    module = made(ScaleNorm)
    assert [(name, value.tolist()) for name, value in module.named_parameters()] == [
        ("length", [pytest.approx(8**0.5)])
    ]
    with torch.no_grad():
        module.length.fill_(-1.7)
    want = torch.stack([-1.7 * x / sum(float(a) ** 2 for a in x) ** 0.5 for x in X.flatten(0, 1)]).view(X.shape)
    torch.testing.assert_close(module(X), want, atol=1e-14, rtol=0)
    tiny = torch.full((8,), 1e-9, dtype=torch.float64)
    torch.testing.assert_close(module(tiny), -1.7 * tiny / 1e-5, atol=1e-18, rtol=1e-12)


def test_scale_norm_begins_as_rms_norm() -> None:
    torch.testing.assert_close(made(ScaleNorm)(X), made(RMSNorm, eps=0.0)(X), atol=0, rtol=2**-24)  # of sqrt(8)


def test_dynamic_tanh_is_its_equation() -> None:
    module = made(DynamicTanh, initial_alpha=0.8)
    torch.testing.assert_close(module(X), torch.tanh(0.8 * X), atol=1e-8, rtol=0)  # 0.8 is a float32 number here
    assert {name: tuple(value.shape) for name, value in module.named_parameters()} == {
        "alpha": (1,),
        "gamma": (8,),
        "beta": (8,),
    }
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    alpha, gamma, beta = module.alpha, module.gamma, module.beta
    squashed = 1 - 2 / ((2 * alpha * X).exp() + 1)
    torch.testing.assert_close(module(X), gamma * squashed + beta, atol=1e-13, rtol=0)


def test_no_norm_gives_the_same_tensor() -> None:
    module = made(NoNorm)
    assert module(X) is X
    assert not list(module.parameters())


@pytest.mark.parametrize("cls", [ScaleNorm, DynamicTanh])
def test_bfloat16_is_rounded_once(cls: type[Norm]) -> None:
    """By 2^-8 of the result at most, and by float32's roundings."""
    module, x = made(cls, 64), torch.randn(50, 64, generator=torch.Generator().manual_seed(3)).bfloat16()

    def of(dtype: torch.dtype) -> Tensor:
        return module.bfloat16().to(dtype)(x.to(dtype)).double()

    torch.testing.assert_close(of(torch.bfloat16), of(torch.float64), atol=1e-6, rtol=2**-8)
