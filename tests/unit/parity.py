"""Holding a model of the zoo against one that nobody here wrote, in both directions."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from zoo.builder import build_model
from zoo.contracts.architecture import Architecture
from zoo.contracts.weights import Weights
from zoo.recipe import Recipe
from zoo.registry import Registry

TOLERANCE = 1e-5
"""float32: some roundings of 6e-8 through a few layers of values near 1."""


class Difference(NamedTuple):
    """Largest differences of one model, with the same weights in both."""

    outputs: float
    gradients: float
    """Of a tensor, over its largest element where that is above 1."""


MEASURED: dict[str, tuple[Difference, Difference]] = {}
"""By test: with their weights in our model, and with ours in theirs. ``benchmarks/parity.py`` prints it."""


def small_recipe(architecture: str, **settings: Any) -> Recipe:
    """A preset of one architecture: no data, no task."""
    return Recipe.from_dict({"architecture": {"name": architecture, **settings}}, fragment=True)


def compare(
    recipe: Recipe,
    weights: str,
    other: nn.Module,
    *,
    ours: Callable[[Any], Tensor],
    theirs: Callable[[Any], Tensor],
) -> None:
    """Outputs and gradients equal with their weights in ours, and with ours in theirs.

    Args:
        recipe: of our model.
        weights: name of the component that translates.
        other: their model; its values are scattered, so that none is 0 or 1.
        ours, theirs: a forward pass of the one and the other over the same inputs.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in other.parameters():
            if parameter.requires_grad:  # a table of sines hasn't
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
    translate: Weights = Registry.discover().find("weights", weights).load().part()()
    model = build_model(recipe).eval()
    translate.load(model, other.eval().state_dict())
    forth = _equal(model, other, translate, ours, theirs)
    model.initialize(5)  # and the other way round
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
    missing, unexpected = other.load_state_dict(_with_their_prefix(other, translate, model), strict=False)
    assert not unexpected, unexpected
    missing = [name for name in map(translate.normalized, missing) if not translate.ignored(name)]
    state = {translate.normalized(name): tensor for name, tensor in other.state_dict().items()}
    assert set(missing) <= translate.implied(model, state).keys(), missing
    if hasattr(other, "tie_weights"):
        other.tie_weights()
    back = _equal(model, other, translate, ours, theirs)
    file, _, test = os.environ["PYTEST_CURRENT_TEST"].removesuffix(" (call)").rpartition("::")
    MEASURED[f"{Path(file).stem}: {test}".replace("test_", "").replace("parity_", "")] = (forth, back)


def _with_their_prefix(other: nn.Module, translate: Weights, model: Architecture) -> dict[str, Tensor]:
    names = {translate.normalized(name): name for name in other.state_dict()}
    return {names[name]: tensor for name, tensor in translate.save(model).items()}


def _equal(
    model: Architecture,
    other: nn.Module,
    translate: Weights,
    ours: Callable[..., Tensor],
    theirs: Callable[..., Tensor],
) -> Difference:
    got, want = ours(model), theirs(other)
    torch.testing.assert_close(got, want, rtol=0, atol=TOLERANCE)
    for made, scores in ((model, got), (other, want)):
        made.zero_grad()
        (scores.float().square().sum() / scores.numel()).backward()
    gradients = {name: parameter.grad for name, parameter in other.named_parameters()}
    gradients = {translate.normalized(name): grad for name, grad in gradients.items()}
    own = {name: parameter.grad for name, parameter in model.named_parameters()}
    gaps = []
    for match in translate.found(model):
        pieces = [own[name] for name in match.ours]
        if match.theirs in gradients and gradients[match.theirs] is not None and None not in pieces:
            scale = max(1.0, float(gradients[match.theirs].abs().max()))
            gaps.append(float((match.to_theirs(pieces) - gradients[match.theirs]).abs().max()) / scale)
            assert gaps[-1] <= TOLERANCE, (match.theirs, gaps[-1])
    return Difference(float((got - want).detach().abs().max()), max(gaps))
