"""Fitting the law: planted constants come back, intervals hold them, and what can't be known is said."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.optimize import least_squares

from zoo.errors import UserError
from zoo.scaling.fit import DELTA, Fit, Points, fit_law
from zoo.scaling.law import PUBLISHED, Law
from zoo.scaling.outlook import FARTHEST, ahead, hindsight, look

SMALL = Law(E=0.8, A=20, B=60, a=0.35, b=0.4)
"""About that of models of bytes with up to a million parameters."""
SIZES, AMOUNTS = (1e4, 3e4, 1e5, 3e5, 1e6), (2.5e5, 8e5, 2.5e6)
LARGE_SIZES, LARGE_AMOUNTS = (7e7, 2.5e8, 1e9, 4e9, 1.6e10), (5e9, 3e10, 1e11, 5e11)
NAMES = ("E", "A", "B", "a", "b")


def grid(sizes: tuple[float, ...], amounts: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    parameters, tokens = np.meshgrid(sizes, amounts)
    return parameters.ravel(), tokens.ravel()


def ladder(law: Law, sizes: tuple[float, ...], amounts: tuple[float, ...], noise: float = 0, seed: int = 0) -> Points:
    """Runs whose losses follow a law, up to noise of some share."""
    parameters, tokens = grid(sizes, amounts)
    draws = np.random.default_rng(seed).standard_normal(parameters.size)
    return Points(parameters, tokens, law.loss(parameters, tokens) * np.exp(noise * draws))


def small(noise: float = 0, seed: int = 0) -> Points:
    return ladder(SMALL, SIZES, AMOUNTS, noise, seed)


def interval(fit: Fit, name: str) -> tuple[float, float]:
    return fit.interval(lambda law: getattr(law, name))


@pytest.fixture(scope="module")
def noisy() -> Fit:
    return fit_law(small(noise=0.003, seed=3), draws=200)


# Planted constants


@pytest.mark.parametrize(
    ("law", "sizes", "amounts"),
    [
        (SMALL, SIZES, AMOUNTS),
        (SMALL, SIZES[:3], AMOUNTS),
        (PUBLISHED["hoffmann-2022"], LARGE_SIZES, LARGE_AMOUNTS),
        (PUBLISHED["besiroglu-2024"], LARGE_SIZES, LARGE_AMOUNTS),
        (Law(E=0.01, A=3, B=900, a=0.1, b=0.7), SIZES, AMOUNTS),
    ],
)
def test_planted_constants_come_back(law: Law, sizes: tuple[float, ...], amounts: tuple[float, ...]) -> None:
    fit = fit_law(ladder(law, sizes, amounts), draws=1)
    for name in NAMES:
        assert getattr(fit.law, name) == pytest.approx(getattr(law, name), rel=1e-3), name
    assert fit.residual < 1e-6 and len(fit.notes) == (fit.points.losses.size < 15)


def test_planted_constants_are_in_the_intervals(noisy: Fit) -> None:
    for name in NAMES:
        low, high = interval(noisy, name)
        assert low <= getattr(SMALL, name) <= high, name
        assert low < high
    assert 0.001 < noisy.residual < 0.007


def test_the_optimum_is_the_one_of_another_method(noisy: Fit) -> None:
    """scipy's trust region with the same loss, from the planted constants."""
    points = noisy.points
    parameters, tokens, losses = points

    def gaps(theta: np.ndarray) -> np.ndarray:
        e, size, data, a, b = theta
        sum_ = np.exp(e) + np.exp(size - a * np.log(parameters)) + np.exp(data - b * np.log(tokens))
        return np.log(sum_) - np.log(losses)

    def total(theta: np.ndarray) -> float:
        size = np.abs(gaps(theta)) / DELTA
        return float(np.where(size <= 1, size**2 / 2, size - 0.5).sum())

    def logs(law: Law) -> np.ndarray:
        return np.array([math.log(law.E), math.log(law.A), math.log(law.B), law.a, law.b])

    found = least_squares(gaps, logs(SMALL), loss="huber", f_scale=DELTA, x_scale="jac", xtol=1e-14, ftol=1e-14)
    assert total(logs(noisy.law)) <= total(found.x) * (1 + 1e-6)
    assert noisy.law.b == pytest.approx(found.x[4], rel=0.02)


@pytest.mark.slow
def test_no_start_of_the_papers_own_grid_leads_to_a_better_optimum() -> None:
    from zoo.scaling.fit import _Problem

    for seed in range(3):
        problem = _Problem(small(noise=0.005, seed=seed))
        best = problem.value(problem.solve_anywhere())
        weights = np.ones(len(SIZES) * len(AMOUNTS))
        shift = np.array([0, problem.centre[0], problem.centre[1]])
        for a in (0.0, 0.5, 1.0, 2.0):
            for b in (0.0, 0.5, 1.0, 2.0):
                for e in (-1.0, 0.0, 1.0):
                    for size, data in ((0, 0), (5, 10), (10, 5), (15, 15), (25, 20)):
                        start = np.array([e, size - a * shift[1], data - b * shift[2], a, b])
                        assert problem.solve(start, weights)[1] >= best * (1 - 1e-6)


def test_one_bad_run_moves_little() -> None:
    points = small()
    points.losses[7] *= 1.2
    fit = fit_law(points, draws=1)
    assert fit.law.a == pytest.approx(SMALL.a, rel=0.02) and fit.law.b == pytest.approx(SMALL.b, rel=0.02)


def test_the_order_of_runs_does_not_matter(noisy: Fit) -> None:
    order = np.random.default_rng(0).permutation(noisy.points.losses.size)
    mixed = fit_law(Points(*(column[order] for column in noisy.points)), draws=1)
    for name in NAMES:
        assert getattr(mixed.law, name) == pytest.approx(getattr(noisy.law, name), rel=1e-4)


def test_the_bootstrap_is_seeded(noisy: Fit) -> None:
    again, other = fit_law(noisy.points, draws=20), fit_law(noisy.points, draws=20, seed=1)
    assert again.draws == noisy.draws[:20]
    assert other.draws != again.draws


# What can't be known


@pytest.mark.parametrize(
    ("sizes", "amounts", "said"),
    [
        (SIZES[:2], AMOUNTS, "6 runs of 2 sizes and 3 amounts"),
        (SIZES, AMOUNTS[:2], "10 runs of 5 sizes and 2 amounts"),
        (SIZES[:1], AMOUNTS[:1], "1 runs of 1 sizes and 1 amounts"),
    ],
)
def test_too_small_ladders_are_refused(sizes: tuple[float, ...], amounts: tuple[float, ...], said: str) -> None:
    with pytest.raises(UserError, match=said):
        fit_law(ladder(SMALL, sizes, amounts), draws=1)


def test_two_sizes_do_not_determine_five_constants() -> None:
    """Why three are asked for: another law agrees with the planted one on any ladder of two sizes."""
    (n1, n2), a = SIZES[:2], 0.7
    A = SMALL.A * (n1**-SMALL.a - n2**-SMALL.a) / (n1**-a - n2**-a)
    other = dataclasses.replace(SMALL, a=a, A=A, E=SMALL.E + SMALL.A * n1**-SMALL.a - A * n1**-a)
    parameters, tokens = grid((n1, n2), AMOUNTS)
    assert other.loss(parameters, tokens) == pytest.approx(SMALL.loss(parameters, tokens), rel=1e-12)
    assert abs(other.loss(1e6, 1e6) / SMALL.loss(1e6, 1e6) - 1) > 0.05


def test_data_that_follow_size_are_refused_where_they_tell_nothing() -> None:
    law = dataclasses.replace(SMALL, a=0.4)
    sizes = np.geomspace(1e4, 1e6, 9)
    with pytest.raises(UserError, match="vary together"):
        fit_law(Points(sizes, 20 * sizes, law.loss(sizes, 20 * sizes)), draws=1)


@pytest.mark.parametrize("loss", [0.0, -1.0, math.nan, math.inf])
def test_a_loss_without_a_logarithm_is_refused(loss: float) -> None:
    points = small()
    points.losses[0] = loss
    with pytest.raises(UserError, match="can't be fitted"):
        fit_law(points, draws=1)


def test_a_ladder_whose_losses_do_not_depend_on_data_says_so() -> None:
    parameters, tokens = grid(SIZES, AMOUNTS)
    noise = np.random.default_rng(0).standard_normal(parameters.size)
    fit = fit_law(Points(parameters, tokens, (0.8 + 20 * parameters**-0.35) * np.exp(1e-4 * noise)), draws=100)
    low, high = interval(fit, "b")
    assert any("no law in the data" in note for note in fit.notes) or high / low > 10


# Beyond the runs


def test_bands_widen_and_far_places_are_marked(noisy: Fit) -> None:
    near, *_, far = ahead(noisy)
    widths = [place.high / place.low - 1 for place in (near, far)]
    assert widths[1] > 3 * widths[0] > 0
    assert near.flops == pytest.approx(6 * SIZES[-1] * AMOUNTS[-1])
    assert far.flops == pytest.approx(1000 * near.flops)
    assert far.beyond > FARTHEST > look(noisy, 5e6, 2e6).beyond == pytest.approx(5)
    assert look(noisy, 1e5, 1e6).beyond == 1
    assert look(noisy, 1e5, 1e4).beyond == pytest.approx(25)
    for place in (near, far):
        assert place.low <= SMALL.loss(place.parameters, place.tokens) <= place.high


def test_the_band_is_the_interval_of_each_place(noisy: Fit) -> None:
    low, high = noisy.band(np.array([1e5, 1e7]), np.array([1e6, 1e8]))
    for index, place in enumerate((look(noisy, 1e5, 1e6), look(noisy, 1e7, 1e8))):
        assert (low[index], high[index]) == pytest.approx((place.low, place.high))


def test_the_largest_run_is_predicted_from_the_others() -> None:
    points = small(noise=0.003, seed=5)
    past = hindsight(points, draws=100, seed=0)
    assert past is not None
    assert (past.predicted.parameters, past.predicted.tokens) == (SIZES[-1], AMOUNTS[-1])
    assert past.measured == points.losses[-1]
    assert past.predicted.loss == pytest.approx(past.measured, rel=0.02)
    spoiled = points.losses.copy()
    spoiled[-1] *= 1.5  # what is predicted doesn't know it
    other = hindsight(points._replace(losses=spoiled), draws=100, seed=0)
    assert other is not None and other.predicted == past.predicted
    assert not other.predicted.low <= other.measured <= other.predicted.high


def test_there_is_no_hindsight_where_the_others_are_too_few() -> None:
    assert hindsight(ladder(SMALL, SIZES[:3], AMOUNTS), draws=1, seed=0) is None


def test_intervals_of_few_runs_are_said_to_be_too_narrow() -> None:
    few = fit_law(ladder(SMALL, SIZES[:3], AMOUNTS, noise=0.003), draws=1)
    assert "with 9 runs the intervals are too narrow" in few.notes[0]
    assert not fit_law(small(noise=0.003), draws=1).notes


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.003, 0.01])
def test_intervals_cover_what_was_planted(noise: float) -> None:
    """Over simulated ladders, the 95 % intervals of the exponents and of a loss beyond the runs hold the truth."""
    trials, far = 40, (1e7, 2.5e7)
    hits = dict.fromkeys(("a", "b", "size_exponent", "far"), 0)
    for trial in range(trials):
        fit = fit_law(small(noise, seed=100 + trial), draws=100)
        for name in ("a", "b", "size_exponent"):
            low, high = interval(fit, name)
            hits[name] += low <= getattr(SMALL, name) <= high
        place = look(fit, *far)
        hits["far"] += place.low <= SMALL.loss(*far) <= place.high
    # Of 40 intervals that hold the truth in 95 of 100 cases, fewer than 34 do in 1 of 100.
    assert min(hits.values()) >= 34, hits
