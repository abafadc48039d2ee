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

from zoo.initialization import initialize
from zoo.testing.module_case import DIM, ModuleCase, ModuleSubject
from zoo.testing.modules import MODULE_CHECKS
from zoo.testing.numbers import EXACT, agree, differ, finite
from zoo.testing.suite import Failed, Suite
from zoo.testing.variants import Variant


class _LayerNorm(nn.LayerNorm):
    """A norm as arrangements make it, called with ``dim``; without a shift, so that it gives 0 for a silent branch."""

    def __init__(self, *, dim: int) -> None:
        super().__init__(dim, bias=False)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ResidualCase(ModuleCase):
    """One arrangement of two branches."""

    def run(self, module: Any, x_BTD: Tensor) -> Tensor:
        """(B, T, D) with two branches that change every vector by itself."""
        return _with_factors(module, x_BTD, [1.0, 1.0])


class ResidualSubject(ModuleSubject):
    """An arrangement of width 16 with two branches, the first of two layers."""

    case = ResidualCase

    @property
    def surroundings(self) -> Mapping[str, Any]:
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


@SUITE.check("layer_scale acts on every branch", tokens=(2,), knobs=False)
def scales_branches(case: ResidualCase) -> None:
    """With a LayerScale that begins at 0 all branches are silent; take their outputs by ``contribution``."""
    module, x_BTD = case.build({"layer_scale": 0.0}), case.input()
    initialize(module, case.seed, std=0.3, branch_std=0.3)
    module = module.double()
    silent_BTD = module(x_BTD, [torch.zeros_like, torch.zeros_like])
    agree(case.run(module, x_BTD), silent_BTD, "a layer_scale of 0 against silent branches")


@SUITE.check("drop_path drops a branch of whole rows", tokens=(2,), knobs=False)
def drops_paths(case: ResidualCase) -> None:
    """At 0.5 each row of the last layer has each branch twice or not at all; nothing is dropped in the first."""
    path = dataclasses.replace(case, variant=Variant({"drop_path": 0.5}))
    last, x_BTD = path.make(training=True, layer=1), case.input(32)
    torch.manual_seed(case.seed)
    got_BTD = case.run(last, x_BTD)
    fates = [[one, other] for one in (0.0, 2.0) for other in (0.0, 2.0)]
    whole = torch.stack([_with_fate(case, last.eval(), x_BTD, fate) for fate in fates])
    errors = (whole - got_BTD).detach().abs().amax((-1, -2))
    if float(errors.amin(0).max()) > EXACT * max(1.0, float(whole.detach().abs().max())):
        raise Failed("with a drop_path of 0.5 a row is neither without a branch nor has it twice")
    if len(seen := set(errors.argmin(0).tolist())) < 4:
        raise Failed(f"of 32 rows with a drop_path of 0.5 none had {4 - len(seen)} of the 4 outcomes of two branches")
    first = path.make(training=True, layer=0)
    agree(case.run(first, x_BTD), case.run(first.eval(), x_BTD), "drop_path in the first layer", tolerance=0.0)


def _with_fate(case: ResidualCase, module: Any, x_BTD: Tensor, fate: list[float]) -> Tensor:
    """What it gives where each branch adds this many times its contribution, which may be more than its output."""
    contribution = module.contribution
    module.contribution = lambda index, out_BTD: fate[index] * contribution(index, out_BTD)
    try:
        return case.run(module, x_BTD)
    finally:
        del module.contribution


def _with_factors(module: Any, x_BTD: Tensor, factors: list[float]) -> Tensor:
    return module(x_BTD, [lambda x: factors[0] * x.tanh().roll(1, -1), lambda x: factors[1] * 0.5 * x.sin()])


SUITE.include(MODULE_CHECKS)
