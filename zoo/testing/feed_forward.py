"""Conformance of a feed-forward network: the same function of every position.

Dimension legend: B batch, T tokens, D width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.contracts.values.notes import Notes
from zoo.testing.masks import padding
from zoo.testing.module_case import DIM, ModuleCase, ModuleSubject
from zoo.testing.modules import BRANCH_CHECKS, MODULE_CHECKS
from zoo.testing.numbers import agree, differ, finite
from zoo.testing.suite import Failed, Skipped, Suite


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FeedForwardCase(ModuleCase):
    """One network with certain knobs at a certain length."""

    def run(self, module: Any, x_BTD: Tensor) -> Tensor:
        """(B, T, D)."""
        return module(x_BTD, notes=Notes())


class FeedForwardSubject(ModuleSubject):
    """A feed-forward network of width 16, the first of two layers."""

    case = FeedForwardCase

    @property
    def surroundings(self) -> Mapping[str, Any]:
        """Width and place in the stack."""
        return {"dim": DIM, "layer": 0, "layers": 2}


SUITE = Suite("feed_forward", FeedForwardSubject)


@SUITE.check("gives (B, T, D) from (B, T, D)")
def runs(case: FeedForwardCase) -> None:
    """At length 1 and at odd lengths, with notes and without."""
    module, x_BTD = case.make(), case.input()
    out_BTD = module(x_BTD)
    if out_BTD.shape != x_BTD.shape:
        raise Failed(f"gives {tuple(out_BTD.shape)} from {tuple(x_BTD.shape)}")
    finite(out_BTD, "output")
    agree(case.run(module, x_BTD), out_BTD, "output with notes against without", tolerance=0.0)


@SUITE.check("each position by itself", tokens=(5,))
def positions_apart(case: FeedForwardCase) -> None:
    """Replacing one vector changes its own output and no other."""
    module, x_BTD = case.make(), case.input()
    base_BTD = case.run(module, x_BTD)
    for t in range(case.tokens):
        moved_BTD = x_BTD.clone()
        moved_BTD[0, t] = case.input(salt=7)[0, t]
        out_BTD = case.run(module, moved_BTD)
        differ(out_BTD[0, t], base_BTD[0, t], f"input {t} doesn't matter to output {t}")
        out_BTD[0, t] = base_BTD[0, t]
        agree(out_BTD, base_BTD, f"the other outputs when input {t} of row 0 is replaced")


@SUITE.check("the same function everywhere", tokens=(5,))
def same_everywhere(case: FeedForwardCase) -> None:
    """Reordered positions give reordered outputs, and a batch is its rows."""
    module, x_BTD = case.make(), case.input()
    out_BTD, order = case.run(module, x_BTD), [3, 0, 4, 2, 1]
    agree(case.run(module, x_BTD[:, order]), out_BTD[:, order], f"positions reordered by {order}")
    agree(case.run(module, x_BTD[1:]), out_BTD[1:], "row 1 alone")


@SUITE.check("padding doesn't matter", tokens=(5,))
def padding_apart(case: FeedForwardCase) -> None:
    """With ``valid_BT`` other values in the padding change neither a token's output nor a loss of the network's own."""
    module, x_BTD = case.make(), case.input()
    valid_BT = padding([5, 2], 5, left=True)
    junk_BTD = torch.where(valid_BT[..., None], x_BTD, 1e3 * case.input(salt=9))
    outs, totals = [], list[Tensor]()
    for given in (x_BTD, junk_BTD):
        notes = Notes()
        outs.append(module(given, valid_BT=valid_BT, notes=notes)[valid_BT])
        if (total := notes.auxiliary_total()) is not None:
            totals.append(total)
    agree(outs[1], outs[0], "outputs of tokens beside other padding")
    if totals:
        agree(totals[1], totals[0], "its auxiliary loss beside other padding")


@SUITE.check("a loss of its own adds up", tokens=(5,))
def auxiliary_adds_up(case: FeedForwardCase) -> None:
    """An auxiliary loss is a finite scalar with a gradient; a network without one says nothing."""
    module, notes = case.make(training=True), Notes()
    module(case.input(), notes=notes)
    total = notes.auxiliary_total()
    if total is None:
        raise Skipped("it has no loss of its own")
    if total.ndim:
        raise Failed(f"its auxiliary loss has shape {tuple(total.shape)}; it must be a scalar, a sum over tokens")
    finite(total, "auxiliary loss")
    if not total.requires_grad:
        raise Failed("its auxiliary loss has no gradient")
    twice = Notes()
    module.eval()(case.input().repeat(2, 1, 1), notes=twice)
    once = Notes()
    module(case.input(), notes=once)
    totals = [notes.auxiliary_total() for notes in (once, twice)]
    if totals[0] is not None and totals[1] is not None:
        agree(totals[1], 2 * totals[0], "its auxiliary loss of all rows twice, against twice that of all rows")


SUITE.include([*BRANCH_CHECKS, *MODULE_CHECKS])
