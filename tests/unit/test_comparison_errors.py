"""How often verdicts are wrong, by simulation: thousands of comparisons of which the truth is known.

A bound is the nominal rate and what chance adds to it: the 0.999 quantile of so many draws. Each has a control, a rule
that is known to break it, so that a bound that everything keeps would be noticed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from zoo.comparison.power import POWER, detectable
from zoo.comparison.statistics import ALPHA

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import comparison_errors as errors
from comparison_errors import World

TIMES = 2000
FEWER = 500
"""For controls, which miss by far."""
PILOTS = 300


def at_most(rate: float, times: int = TIMES) -> float:
    """A share that is exceeded once in a thousand if the rate is what it should be."""
    return float(binom.ppf(0.999, times, rate)) / times


def at_least(rate: float, times: int = TIMES) -> float:
    """A share that is missed once in a thousand."""
    return float(binom.ppf(0.001, times, rate)) / times


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# Nothing differs


@pytest.mark.parametrize(("seeds", "variants"), [(2, 1), (3, 4), (5, 4), (10, 2)])
def test_reports_on_nothing_hold_a_false_verdict_no_oftener_than_5_in_100(
    seeds: int, variants: int, rng: np.random.Generator
) -> None:
    """Variants share the baseline, so their tests are correlated."""
    world = World(seeds=seeds, effects=(0.0,) * variants)
    rate = errors.false_rate(world, TIMES, rng)
    assert rate <= at_most(ALPHA)
    if variants == 1:
        assert rate >= at_least(ALPHA)  # the test is exact, not timid
    else:
        assert errors.false_rate(world, FEWER, rng, is_corrected=False) > at_most(ALPHA, FEWER)


@pytest.mark.parametrize("shape", [shape for shape in errors.SHAPES if shape != "normal"])
def test_other_noise_makes_no_more_false_verdicts(shape: str, rng: np.random.Generator) -> None:
    """Where nothing differs, variant and baseline have the same noise, so that differences are symmetric."""
    for seeds in (3, 10):
        world = World(seeds=seeds, effects=(0.0,) * 2, shape=shape)
        assert errors.false_rate(world, 2 * FEWER, rng) <= at_most(ALPHA, 2 * FEWER)


@pytest.mark.parametrize("shape", ["normal", "heavy tails: t(3)"])
def test_the_sign_flip_test_keeps_its_level_whatever_the_noise(shape: str, rng: np.random.Generator) -> None:
    # with 6 pairs it rejects where all signs agree: 2 / 64
    rate = errors.flip_rate(World(seeds=6, effects=(0.0,), shape=shape), TIMES, rng)
    assert at_least(2 / 64) <= rate <= at_most(2 / 64)
    assert errors.flip_rate(World(seeds=5, effects=(0.0,), shape=shape), 200, rng) == 0


# Some differ


def test_a_report_with_differences_margins_and_neither_is_one_family(rng: np.random.Generator) -> None:
    """Large differences are found and leave Holm less to correct for; the others stand at the edge of what is false."""
    world = World(seeds=10, effects=(6.0, 0.0, 0.0, 1.5, -1.5), margin=1.5)
    assert errors.false_rate(world, TIMES, rng) <= at_most(ALPHA)
    assert errors.false_rate(world, FEWER, rng, is_corrected=False) > at_most(ALPHA, FEWER)


@pytest.mark.parametrize(("seeds", "margin"), [(3, 4.0), (5, 2.0), (20, 1.0)])
def test_a_difference_of_the_margin_is_seldom_called_equivalent(
    seeds: int, margin: float, rng: np.random.Generator
) -> None:
    for effect in (margin, -margin):
        world = World(seeds=seeds, effects=(effect,), margin=margin)
        assert errors.verdict_rate(world, "equivalent", TIMES, rng) <= at_most(ALPHA)
    inside = World(seeds=seeds, effects=(0.5 * margin,), margin=margin)
    assert errors.verdict_rate(inside, "equivalent", FEWER, rng) > at_most(ALPHA, FEWER)


@pytest.mark.parametrize(
    "world",
    [
        World(seeds=2, effects=(0.0,)),
        World(seeds=5, effects=(0.3,)),
        World(seeds=5, effects=(0.0, 0.5, -1.0, 4.0)),
        World(seeds=10, effects=(0.2,), margin=1.0),
        World(seeds=10, effects=(0.0, 0.9, -4.0), margin=1.0),
    ],
)
def test_intervals_cover_what_they_promise(world: World, rng: np.random.Generator) -> None:
    covered, promised = errors.coverage(world, TIMES, rng)
    assert covered >= at_least(promised)
    if len(world.effects) == 1 and world.margin is None:
        assert covered <= at_most(promised)  # and are no wider than need be


# Planned power


@pytest.mark.parametrize(("seeds", "verdicts"), [(2, 1), (3, 1), (3, 4), (10, 4)])
def test_a_planned_difference_is_found_as_often_as_promised(
    seeds: int, verdicts: int, rng: np.random.Generator
) -> None:
    size = detectable(seeds, ALPHA / verdicts)
    world = World(seeds=seeds, effects=(size,) + (0.0,) * (verdicts - 1))
    rate = errors.verdict_rate(world, "worse", TIMES, rng)
    assert at_least(POWER) <= rate <= at_most(POWER + 0.03)  # Holm may ask less than Bonferroni's level
    smaller = World(seeds=seeds, effects=(0.8 * size,) + (0.0,) * (verdicts - 1))
    assert errors.verdict_rate(smaller, "worse", FEWER, rng) < at_least(POWER, FEWER)


@pytest.mark.parametrize("seeds", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_the_seeds_that_a_pilot_is_told_are_enough(seeds: int, rng: np.random.Generator) -> None:
    there, nowhere = (World(seeds=seeds, effects=(effect,), margin=0.5) for effect in (0.5, 0.0))
    assert errors.advised(there, PILOTS, rng)[0] >= at_least(POWER, PILOTS)
    assert errors.advised(nowhere, PILOTS, rng)[1] >= at_least(POWER, PILOTS)
    if seeds == 3:
        assert errors.advised(there, PILOTS, rng, is_naive=True)[0] < at_least(POWER, PILOTS)


# Runs that are missing, and the noise floor


@pytest.mark.parametrize("effect", [0.0, 0.5])
def test_a_variant_that_diverges_where_it_would_do_badly_wins_nothing(effect: float, rng: np.random.Generator) -> None:
    guarded, naive = errors.survivors(World(seeds=10, effects=(effect,)), FEWER, rng)
    assert guarded <= ALPHA / 2 and guarded < 0.02
    assert naive > 5 * guarded and naive > ALPHA


def test_the_baseline_differs_from_itself_by_the_noise_floor_at_most(rng: np.random.Generator) -> None:
    """Two sets of seeds of one variant: the means are as far apart as 95 of 100 times, or less."""
    rate = errors.noise_rate(World(seeds=4, effects=()), TIMES, rng)
    assert at_least(0.95) <= rate <= at_most(0.95)
