"""Paired differences: against scipy's own test, against numbers by hand, and where there is nothing to say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from zoo.comparison.statistics import decide, paired

VALUES = st.lists(st.tuples(st.integers(-1000, 1000), st.integers(-1000, 1000)), min_size=2, max_size=12)


@given(VALUES)
def test_interval_and_p_are_those_of_scipys_paired_t_test(pairs: list[tuple[int, int]]) -> None:
    variant, baseline = np.array(pairs, np.float64).T / 7
    result = paired(variant, baseline)
    assert result.seeds == len(pairs)
    assert result.difference == pytest.approx(np.mean(variant - baseline), abs=1e-12)
    if np.ptp(np.subtract(*np.array(pairs).T)) == 0:
        assert result.p is None and result.note
        return
    expected = ttest_rel(variant, baseline)
    interval = expected.confidence_interval(0.95)
    assert result.p == pytest.approx(expected.pvalue, rel=1e-9)
    # sums of up to 12 values below 300, whose rounding the interval can't see through
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high), rel=1e-9, abs=1e-11)


def test_three_seeds_by_hand() -> None:
    # d = 1, 2, 3: mean 2, sd 1, t(0.975, 2) = 4.302653, half = 4.302653 / sqrt(3); t = 2 sqrt(3), and for two
    # degrees of freedom p = 1 - t / sqrt(t^2 + 2) = 1 - sqrt(6 / 7)
    result = paired([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert result.difference == 2.0
    assert (result.low, result.high) == pytest.approx((-0.4841377, 4.4841377), abs=1e-6)
    assert result.p == pytest.approx(1 - math.sqrt(6 / 7))


def test_pairing_takes_out_what_seeds_share() -> None:
    seeds = np.array([0.0, 10.0, -20.0, 5.0])
    result = paired(seeds + np.array([1.0, 1.1, 0.9, 1.0]), seeds)
    assert result.low is not None and result.low > 0.8


def test_identical_runs_are_named() -> None:
    result = paired([1.5, 1.25], [1.5, 1.25])
    assert (result.difference, result.low, result.high, result.p) == (0.0, 0.0, 0.0, None)
    assert "identical runs" in result.note
    assert paired([1.5], [1.5]).low is None


def test_a_constant_difference_has_no_interval() -> None:
    result = paired([0.1 + 0.2, 0.7 + 0.2, 1.1 + 0.2], [0.1, 0.7, 1.1])  # equal but for rounding
    assert result.difference == pytest.approx(0.2)
    assert (result.low, result.high, result.p) == (None, None, None)
    assert "no variance" in result.note


def test_one_seed_and_none_have_no_interval() -> None:
    assert paired([2.0], [1.0])[:5] == (1, 1.0, None, None, None)
    assert paired([], [])[:5] == (0, None, None, None, None)


@pytest.mark.parametrize(
    ("low", "high", "lower", "higher"),
    [
        (-2.0, -1.0, "better", "worse"),
        (1.0, 2.0, "worse", "better"),
        (-1.0, 1.0, "undecided", "undecided"),
        (0.0, 1.0, "undecided", "undecided"),
        (-1.0, 0.0, "undecided", "undecided"),
        (None, None, "undecided", "undecided"),
    ],
)
def test_the_verdict_follows_the_interval_and_the_metrics_direction(
    low: float | None, high: float | None, lower: str, higher: str
) -> None:
    assert decide(low, high, "lower") == lower
    assert decide(low, high, "higher") == higher
