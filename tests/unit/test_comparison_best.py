"""Expected best score: against all draws there are, and against draws."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from zoo.comparison.best import expected_best

SCORES = [0.3, 0.9, 0.5, 0.5, 0.1]


@pytest.mark.parametrize(("better", "pick"), [("higher", max), ("lower", min)])
def test_it_is_the_mean_of_the_best_over_all_draws(better: str, pick: type) -> None:
    found = expected_best(SCORES, better)  # type: ignore[arg-type]
    for tries in range(1, 6):
        best = [pick(draw) for draw in itertools.product(SCORES, repeat=tries)]  # type: ignore[call-arg]
        assert found.expected[tries - 1] == pytest.approx(np.mean(best), abs=1e-12)


def test_the_order_of_scores_does_not_matter_and_directions_mirror_each_other() -> None:
    up, turned, down = (
        expected_best(SCORES, "higher"),
        expected_best(SCORES[::-1], "higher"),
        expected_best([-score for score in SCORES], "lower"),
    )
    assert np.array_equal(up.expected, turned.expected)
    assert np.array_equal(up.expected, -down.expected)
    assert np.array_equal(up.low, -down.high) and np.array_equal(up.high, -down.low)


def test_it_rises_from_the_mean_towards_the_best() -> None:
    found = expected_best(SCORES, "higher")
    assert found.expected[0] == pytest.approx(np.mean(SCORES))
    assert (np.diff(found.expected) > 0).all() and found.expected[-1] < 0.9
    assert (found.low <= found.expected).all() and (found.expected <= found.high).all()


def test_a_try_that_diverged_is_part_of_the_budget() -> None:
    found = expected_best([0.3, None, 0.9, float("nan"), float("inf")], "higher")
    assert np.array_equal(found.expected, expected_best([0.3, 0.3, 0.9, 0.3, 0.3], "higher").expected)
    assert expected_best([2.0, None], "lower").expected[0] == 2.0
    assert expected_best([None, float("nan")], "higher").expected.size == 0
    assert expected_best([], "lower").expected.size == 0


def test_a_single_score_is_all_there_is() -> None:
    assert [part.tolist() for part in expected_best([0.4], "lower")] == [[0.4]] * 3


def test_intervals_cover_at_budgets_well_below_what_was_spent() -> None:
    """500 searches of 40 tries each: what 5 uniform draws give at best is 5 / 6 on average."""
    rng = np.random.default_rng(0)
    covers = []
    for _ in range(500):
        found = expected_best(rng.random(40), "higher")  # type: ignore[arg-type]
        covers.append(found.low[4] <= 5 / 6 <= found.high[4])
    assert 0.9 < np.mean(covers) < 0.98
