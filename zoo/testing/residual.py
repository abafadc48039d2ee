"""Conformance of a residual arrangement: every branch once and in order, and a stream that carries the input.

Dimension legend: B batch, T tokens, D width.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from zoo.testing.modules import DIM, MODULE_CHECKS, ModuleCase, ModuleSubject
from zoo.testing.numbers import agree, differ, finite
from zoo.testing.suite import Failed, Suite


class _LayerNorm(nn.LayerNorm):
    """A norm as arrangements make it: called with ``dim``."""

    def __init__(self, *, dim: int) -> None:
        super().__init__(dim)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ResidualCase(ModuleCase):
    """One arrangement of two branches."""

    def run(self, module: Any, x_BTD: Tensor) -> Tensor:
        """(B, T, D) with two branches that change every vector by itself."""
        return module(x_BTD, [lambda x: x.tanh().roll(1, -1), lambda x: 0.5 * x.sin()])


class ResidualSubject(ModuleSubject):
    """An arrangement of width 16 with two branches, the first of two layers."""

    case = ResidualCase

    @functools.cached_property
    def parent(self) -> Mapping[str, Any]:
        """Width, norm, branches, and place in the stack."""
        return {"dim": DIM, "norm": _LayerNorm, "branches": 2, "layer": 0, "layers": 2, "dropout": 0.0}


SUITE = Suite("residual", ResidualSubject)


@SUITE.check("gives (B, T, D) from (B, T, D)")
def runs(case: ResidualCase) -> None:
    """With one, two and three branches."""
    for count in (1, 2, 3):
        module, x_BTD = case.make(branches=count), case.input()
        out_BTD = module(x_BTD, [torch.tanh] * count)
        if out_BTD.shape != x_BTD.shape:
            raise Failed(f"{count} branches: gives {tuple(out_BTD.shape)} from {tuple(x_BTD.shape)}")
        finite(out_BTD, f"output with {count} branches")


@SUITE.check("says whether the stack ends with a norm", tokens=(1,))
def says_final_norm(case: ResidualCase) -> str:
    """``final_norm`` is True or False on the class."""
    if not isinstance(getattr(case.component, "final_norm", None), bool):
        raise Failed("final_norm must be True or False on the class")
    return "the stack adds a closing norm" if case.component.final_norm else "no closing norm"


@SUITE.check("every branch once, in order", tokens=(2,))
def branches_in_order(case: ResidualCase) -> None:
    """Each branch is called exactly once, the first one first; a wrong number of branches is an error."""
    calls: list[int] = []

    def branch(index: int, x_BTD: Tensor) -> Tensor:
        calls.append(index)
        return x_BTD

    branches = [functools.partial(branch, index) for index in range(2)]
    case.make()(case.input(), branches)
    if calls != [0, 1]:
        raise Failed(f"branches were called in the order {calls}, they should be called once each: [0, 1]")
    try:
        case.make()(case.input(), branches[:1])
    except Exception:  # a ValueError of zip(strict=True), an IndexError: anything but silence
        return
    raise Failed("made for two branches, it took one without a word")


@SUITE.check("every branch matters", tokens=(2,))
def branches_matter(case: ResidualCase) -> None:
    """What a branch gives reaches the output."""
    module, x_BTD = case.make(), case.input()
    base_BTD = case.run(module, x_BTD)
    for index in range(2):
        branches: list[Any] = [lambda x: x.tanh().roll(1, -1), lambda x: 0.5 * x.sin()]
        branches[index] = lambda x: case.input(salt=5).to(x.dtype)
        differ(module(x_BTD, branches), base_BTD, f"branch {index} doesn't matter")


@SUITE.check("the stream carries the input", tokens=(3,))
def carries(case: ResidualCase) -> None:
    """With branches that give 0 the output still depends on the input, each position on its own."""
    module, x_BTD = case.make(), case.input()
    silent = [torch.zeros_like, torch.zeros_like]
    base_BTD = module(x_BTD, silent)
    for t in range(case.tokens):
        moved_BTD = x_BTD.clone()
        moved_BTD[:, t] = case.input(salt=7)[:, t]
        out_BTD = module(moved_BTD, silent)
        differ(out_BTD[:, t], base_BTD[:, t], f"with silent branches input {t} is lost")
        others = [other for other in range(case.tokens) if other != t]
        agree(out_BTD[:, others], base_BTD[:, others], f"other positions when input {t} is replaced")


@SUITE.check("dropout acts on branches in training", tokens=(3,), knobs=False)
def drops(case: ResidualCase) -> None:
    """With a dropout of 0.5 two training passes differ, and with silent branches they don't: the stream is kept."""
    module, x_BTD = case.make(training=True, dropout=0.5), case.input()
    torch.manual_seed(case.seed)
    differ(case.run(module, x_BTD), case.run(module, x_BTD), "a dropout of 0.5 does nothing in training")
    silent = [torch.zeros_like, torch.zeros_like]
    agree(module(x_BTD, silent), module(x_BTD, silent), "two training passes with silent branches", tolerance=0.0)


SUITE.include(MODULE_CHECKS)
