"""How many seeds a verdict takes: asked before a run, and after one that left it open.

    differ:  E_u Φ(√n · δ / σ - c u)                                                 c = t(1 - a/2, n - 1)
    equal:   E_u [Φ(√n · (M - δ) / σ - c u) - Φ(c u - √n · (M + δ) / σ)]₊            c = t(1 - a, n - 1)

for a true difference δ, whose paired differences have the standard deviation σ, within a margin M, over what their
deviation turns out to be: u² ~ χ²(n - 1) / (n - 1). The first is the noncentral t, the second Owen's 1965 integral.

A deviation s that comes from k pairs is not σ. Power is therefore averaged over the σ that s leaves open as well,
σ² = s² (k - 1) / χ²(k - 1), and so is kept on average over pilots (Julious and Owen 2006, "Sample size calculations for
clinical studies allowing for uncertainty about the variance"). Taking s for σ, a pilot of 3 promises more than it
keeps, which ``benchmarks/comparison_errors.py`` measures.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.special import chdtri, ndtr, stdtrit

from zoo.comparison.statistics import ALPHA, Array, Paired
from zoo.errors import UserError

if TYPE_CHECKING:
    from zoo.recipe import Comparison

POWER = 0.8
"""Probability with which a difference of the planned size is found."""
MOST = 1000
"""Further seeds; a verdict that takes more is said to take more."""
NODES = 64
"""Of each average over a standard deviation."""


def power_to_differ(ratio: Array, seeds: int, alpha: float) -> Array:
    """Probability that the two-sided test of level alpha rejects, and on the right side.

    Args:
        ratio: true difference in standard deviations of the paired differences.
        seeds: pairs, at least 2.
        alpha: level of the test.
    """
    bound = -float(stdtrit(seeds - 1, alpha / 2)) * _spreads(seeds - 1)
    return ndtr(math.sqrt(seeds) * np.abs(ratio)[..., None] - bound).mean(-1)


def power_to_equal(ratio: Array, margin: Array, seeds: int, alpha: float) -> Array:
    """Probability that both one-sided tests of level alpha reject.

    Args:
        ratio: true difference in standard deviations of the paired differences.
        margin: likewise.
        seeds: pairs, at least 2.
        alpha: level of each test.
    """
    bound = -float(stdtrit(seeds - 1, alpha)) * _spreads(seeds - 1)
    root = math.sqrt(seeds)
    found = ndtr(root * (margin - ratio)[..., None] - bound) - ndtr(bound - root * (margin + ratio)[..., None])
    return np.maximum(found, 0).mean(-1)


@functools.lru_cache(maxsize=4096)
def _spreads(freedom: int) -> Array:
    """Equally likely values of s / σ, where s has so many degrees of freedom."""
    return np.sqrt(chdtri(freedom, (np.arange(NODES) + 0.5) / NODES) / freedom)


@functools.lru_cache(maxsize=8192)
def detectable(seeds: int, alpha: float, pilot: int | None = None) -> float:
    """The least difference that is found with probability POWER, in standard deviations of the paired differences.

    Args:
        seeds: pairs, at least 2.
        alpha: level of the test: with Holm over m verdicts, ALPHA / m at worst.
        pilot: values that the deviation was estimated from; ``None`` where it is known.
    """
    spreads = np.ones(1) if pilot is None else _spreads(pilot - 1)
    return _least(lambda ratio: float(power_to_differ(ratio * spreads, seeds, alpha).mean()))


@functools.lru_cache(maxsize=8192)
def provable_margin(seeds: int, alpha: float, pilot: int | None = None) -> float:
    """The least margin within which no difference is found equivalent with probability POWER; like ``detectable``."""
    spreads = np.ones(1) if pilot is None else _spreads(pilot - 1)
    nothing = np.zeros(1)
    return _least(lambda margin: float(power_to_equal(nothing, margin * spreads, seeds, alpha).mean()))


def _least(power: Callable[[float], float]) -> float:
    """Where a rising power reaches POWER."""
    from scipy.optimize import brentq

    high = 1.0
    while power(high) < POWER:
        high *= 2
    return float(brentq(lambda size: power(size) - POWER, 0, high, rtol=1e-6))


class Need(NamedTuple):
    """What an undecided verdict takes."""

    seeds: int | None
    """Further pairs; ``None`` for more than MOST."""
    size: Literal["margin", "observed"]
    """The difference that the power is for."""


def seeds_needed(pairs: Paired, margin: float | None, alpha: float) -> Need | None:
    """Further seeds for power POWER at the level of an undecided verdict; ``None`` where there is no spread.

    With a margin: so many that a difference as large as the margin, and the absence of one, would each be found.
    Without one, or where the pairs are already that many: for a difference as large as the one observed, to be found
    different or equivalent, whichever is sooner. That is no more certain than the observation.
    """
    if not pairs.deviation or pairs.difference is None:
        return None
    pilot, seen = pairs.seeds, abs(pairs.difference) / pairs.deviation
    limit = None if margin is None else margin / pairs.deviation

    def settles_margin(seeds: int) -> bool:
        least = max(detectable(seeds, alpha, pilot), provable_margin(seeds, alpha, pilot))
        return limit is not None and limit >= least

    def settles_observed(seeds: int) -> bool:
        if limit is None or seen >= detectable(seeds, alpha, pilot):
            return seen >= detectable(seeds, alpha, pilot)
        spreads = _spreads(pilot - 1)
        return bool(power_to_equal(seen * spreads, limit * spreads, seeds, alpha).mean() >= POWER)

    if limit is not None and not settles_margin(pilot):
        return Need(_further(pilot, settles_margin), "margin")
    return Need(_further(pilot, settles_observed), "observed")


def _further(pairs: int, settles: Callable[[int], bool]) -> int | None:
    """The least number of further pairs that settles it."""
    found = bisect.bisect_left(range(pairs + 1, pairs + MOST + 1), True, key=settles) + 1
    return found if found <= MOST else None


def check_plan(comparison: Comparison, spreads: Mapping[str, float] | None = None) -> list[str]:
    """What a comparison can find, in lines for people, before anything runs.

    Args:
        comparison: the plan.
        spreads: for tasks on which the baseline has run, the standard deviation of its values over seeds.

    Raises:
        UserError: no verdict can be reached, and the comparison doesn't say that none is wanted.
    """
    count = (len(comparison.variants) - 1) * len(comparison.tasks)
    seeds = len(comparison.seeds)
    if not comparison.verdicts:
        return ["no verdict is asked for (compare.verdicts: false)"]
    alpha = ALPHA / count
    if seeds < 2:
        raise UserError(
            f"{comparison.name}: {seeds} seed can't lead to a verdict, since nothing tells a difference from chance",
            where="compare.seeds",
            fix=f"give at least 2 seeds ({_seeds_for(1, alpha)} find a difference as large as its own spread over "
            "seeds), or compare.verdicts: false to look without a verdict",
        )
    return [
        f"{_counted(seeds, 'seed')}, {_counted(count, 'verdict')}: with probability {POWER} a difference is found that "
        f"is {detectable(seeds, alpha):.3g} times its own spread over seeds; "
        f"{_seeds_for(2, alpha)} seeds would find one of 2 times it, {_seeds_for(1, alpha)} of 1",
        *_about_signs(seeds, alpha),
        *(_about_task(comparison, task, spread, alpha) for task, spread in (spreads or {}).items()),
    ]


def _about_signs(seeds: int, alpha: float) -> list[str]:
    """A warning where the sign-flip test can't go as low as a verdict needs."""
    least = 2.0 ** (1 - seeds)
    if least <= alpha:
        return []
    enough = 1 + math.ceil(-math.log2(alpha))
    return [
        f"verdicts rest on Student's t alone: with {seeds} pairs a sign-flip test can't go below p = {least:g}; "
        f"{enough} pairs would reach the {alpha:.2g} that the first verdict takes"
    ]


def _about_task(comparison: Comparison, task: str, spread: float, alpha: float) -> str:
    """What the spread of the baseline says, as if pairing took nothing out of it."""
    deviation = math.sqrt(2) * spread
    found = detectable(len(comparison.seeds), alpha) * deviation
    said = f"{task}: the baseline's spread over seeds is {spread:.3g}, so a difference of {found:.3g} would be found"
    margin = comparison.equivalence.get(task)
    if margin is None or not deviation:
        return said
    return f"{said}; one of the margin, {margin:g}, takes {_seeds_for(margin / deviation, alpha)} seeds"


def _seeds_for(ratio: float, alpha: float) -> str:
    """The least number of pairs that find a difference of so many standard deviations."""
    sizes = range(2, MOST + 1)
    found = bisect.bisect_left(sizes, True, key=lambda seeds: detectable(seeds, alpha) <= ratio)
    return str(sizes[found]) if found < len(sizes) else f"more than {MOST:,}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
