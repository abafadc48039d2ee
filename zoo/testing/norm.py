"""Conformance of a normalization: each position's vector by itself, in its own dtype.

Dimension legend: B batch, T tokens, D width.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from zoo.testing.module_case import ModuleCase, ModuleSubject
from zoo.testing.modules import MODULE_CHECKS
from zoo.testing.numbers import agree, differ, finite
from zoo.testing.suite import Failed, Suite


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NormCase(ModuleCase):
    """One norm with certain knobs."""

    def run(self, module: Any, x_BTD: Tensor) -> Tensor:
        """(B, T, D)."""
        return module(x_BTD)


class NormSubject(ModuleSubject):
    """A norm of width 16."""

    case = NormCase


SUITE = Suite("norm", NormSubject)


@SUITE.check("keeps shape and dtype", tokens=(3,))
def keeps_shape(case: NormCase) -> None:
    """(..., D) of one to four dimensions, in float64, float32 and bfloat16."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        module, x_BTD = case.make(dtype=dtype), case.input(dtype=dtype)
        for given in (x_BTD[0, 0], x_BTD[0], x_BTD, x_BTD[:, None]):
            got = module(given)
            if got.shape != given.shape or got.dtype != dtype:
                raise Failed(f"makes {tuple(got.shape)} {got.dtype} of {tuple(given.shape)} {dtype}")
            finite(got, f"output in {dtype}")


@SUITE.check("each vector by itself", tokens=(5,))
def vectors_apart(case: NormCase) -> None:
    """No other row or position, and no earlier call, changes what a vector becomes."""
    module, x_BTD = case.make(training=True), case.input()
    base_BTD = module(x_BTD)
    for row, t in ((0, 0), (1, 3)):
        agree(module(x_BTD[row, t]), base_BTD[row, t], f"vector {t} of row {row} alone against in its batch")
        moved_BTD = x_BTD.clone()
        moved_BTD[row, t] = case.input(salt=7)[row, t]
        differ(module(moved_BTD)[row, t], base_BTD[row, t], f"vector {t} of row {row} doesn't matter to its output")


@SUITE.check("vectors of zeros and of equal numbers are harmless", tokens=(1,))
def degenerate(case: NormCase) -> None:
    """Finite output and gradients where the variance or the length is 0, and for large numbers in float32."""
    for value, dtype in (
        (0.0, torch.float64),
        (3.0, torch.float64),
        (1e6, torch.float32),
        (1e3, torch.float16),
    ):
        module = case.make(dtype=dtype)
        x_BTD = torch.full((1, 1, case.width), value, dtype=dtype, requires_grad=True)
        out_BTD = module(x_BTD)
        finite(out_BTD, f"output for a vector of {value:g}")
        out_BTD.sum().backward()
        if value == 1e3:
            want = case.make()(x_BTD.detach().double()).detach()
            agree(out_BTD.double(), want, f"output for a vector of {value:g} in float16", tolerance=0.02)
        assert x_BTD.grad is not None
        finite(x_BTD.grad, f"gradient for a vector of {value:g}")


SUITE.include(MODULE_CHECKS)
