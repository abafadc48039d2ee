"""What a fitted law says of runs that nobody made, how sure that is, and whether it would have been right before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from zoo.errors import UserError
from zoo.scaling.fit import Fit, Points, fit_law
from zoo.scaling.law import FLOPS_PER_PARAMETER_AND_TOKEN

FARTHEST = 10.0
"""How many times beyond the largest, or under the smallest, a size or an amount of data is said to be far."""
AHEAD = (1.0, 10.0, 100.0, 1000.0)
"""Multiples of the most compute of a run for which the best size is said."""


class Outlook(NamedTuple):
    """A law at one place."""

    flops: float
    """6 N D."""
    parameters: float
    """N."""
    tokens: float
    """D."""
    loss: float
    """By the law."""
    low: float
    """Lower end of the interval of the law there; a single run also has its own noise."""
    high: float
    """Upper end."""
    beyond: float
    """How many times N or D leaves what was fitted, 1 inside of it."""


def look(fit: Fit, parameters: float, tokens: float) -> Outlook:
    """The law of a fit at some size and amount of data."""
    low, high = fit.interval(lambda law: law.loss(parameters, tokens))
    loss = fit.law.loss(parameters, tokens)
    flops = FLOPS_PER_PARAMETER_AND_TOKEN * parameters * tokens
    beyond = max(_beyond(parameters, fit.points.parameters), _beyond(tokens, fit.points.tokens))
    return Outlook(flops, parameters, tokens, loss, low, high, beyond)


def _beyond(value: float, fitted: np.ndarray) -> float:
    return max(1.0, value / float(fitted.max()), float(fitted.min()) / value)


def best_at(fit: Fit, flops: float) -> Outlook:
    """The law at the size and amount of data that it holds best for some compute."""
    return look(fit, *fit.law.allocate(flops))


def ahead(fit: Fit) -> list[Outlook]:
    """The best runs for the most compute of the ladder and for some multiples of it."""
    most = FLOPS_PER_PARAMETER_AND_TOKEN * float((fit.points.parameters * fit.points.tokens).max())
    return [best_at(fit, factor * most) for factor in AHEAD]


class Hindsight(NamedTuple):
    """What the other runs would have said of the largest."""

    predicted: Outlook
    """From the others."""
    measured: float
    """Mean over its seeds."""


def hindsight(points: Points, *, draws: int, seed: int) -> Hindsight | None:
    """Leave out the runs with the most compute and predict them; ``None`` if what is left is too little."""
    compute = points.parameters * points.tokens
    largest = compute == compute.max()
    try:
        fit = fit_law(points.without(largest), draws=draws, seed=seed)
    except UserError:
        return None
    (size, *_), (amount, *_) = points.parameters[largest], points.tokens[largest]
    return Hindsight(look(fit, float(size), float(amount)), float(points.losses[largest].mean()))
