"""Conformance of a format of foreign weights: every tensor of its sample model, there and back."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from zoo.builder import build_model
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Description
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.testing.modules import documented_config
from zoo.testing.numbers import agree
from zoo.testing.suite import Check, Failed, Suite

_SMALL = {"layers": 2, "dim": 16, "heads": 4}
_SIZES = Description(vocab_size=29, max_length=12, classes=5, image_size=(32, 32), channels=3)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WeightsCase:
    """One format, over the model that its ``sample`` describes."""

    component: type[Any]
    seed: int
    label: str = "sample"

    def make(self) -> Any:
        """The format."""
        return self.component(self.component.Config())

    def model(self, seed: int) -> Architecture:
        """The sample at small sizes."""
        settings = {"name": self.component.architecture, **_SMALL, **self.component.sample}
        recipe = Recipe.from_dict({"architecture": settings}, fragment=True)
        model = build_model(recipe, _SIZES)
        model.initialize(seed)
        return model


class WeightsSubject:
    """A format under examination."""

    offers: frozenset[str] = frozenset()

    def __init__(self, component: type[Any], *, seed: int = 0, **others: Any) -> None:
        self.component, self.seed = component, seed

    def cases(self, check: Check) -> Iterator[WeightsCase]:
        """The sample."""
        del check
        yield WeightsCase(component=self.component, seed=self.seed)


SUITE = Suite("weights", WeightsSubject)


@SUITE.check("there and back, every tensor once")
def round_trip(case: WeightsCase) -> str:
    """What ``save`` gives, ``load`` takes: another model then has the same parameters."""
    weights, model, other = case.make(), case.model(1), case.model(2)
    ours = Counter(name for match in weights.found(model) for name in match.ours)
    theirs = Counter(match.theirs for match in weights.found(model))
    if twice := [name for names in (ours, theirs) for name, count in names.items() if count > 1]:
        raise Failed(f"{', '.join(twice)} stands in several matches")
    weights.load(other, weights.save(model))
    for name, parameter in model.named_parameters():
        agree(dict(other.named_parameters())[name], parameter, name, tolerance=0.0)
    return f"{len(theirs)} tensors"


@SUITE.check("a tensor missing, left over or of another shape is refused and nothing is filled")
def refuses(case: WeightsCase) -> None:
    """One message, and the model is as it was."""
    weights, model = case.make(), case.model(1)
    state = weights.save(case.model(2))
    first = next(iter(state))
    wrong = {"missing": {k: v for k, v in state.items() if k != first}}
    wrong["left over"] = {**state, "zoo.of.nothing": torch.zeros(1)}
    wrong["of another shape"] = {**state, first: torch.zeros(3, 3, 3)}
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    for what, given in wrong.items():
        try:
            weights.load(model, given)
        except UserError:
            for name, parameter in model.named_parameters():
                agree(parameter, before[name], f"{name} after a refusal", tolerance=0.0)
            continue
        raise Failed(f"takes weights with a tensor {what}")


SUITE.check("every knob has a type, a default and a docstring")(documented_config)
