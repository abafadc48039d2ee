"""Paired differences and verdicts: against scipy and statsmodels, by hand, and where there is nothing to say."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import permutation_test, ttest_rel

from zoo.comparison.statistics import ALPHA, Asked, Paired, holm, judge, paired

VALUES = st.lists(st.tuples(st.integers(-1000, 1000), st.integers(-1000, 1000)), min_size=2, max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
P_VALUES = st.lists(st.floats(1e-6, 1), min_size=1, max_size=12)

# Paired differences


@given(VALUES)
def test_interval_and_p_are_those_of_scipys_paired_t_test(pairs: list[tuple[int, int]]) -> None:
    variant, baseline = np.array(pairs, np.float64).T / 7
    result = paired(variant, baseline)  # type: ignore[arg-type]
    assert result.seeds == len(pairs)
    assert result.difference == pytest.approx(np.mean(variant - baseline), abs=1e-12)
    if np.ptp(np.subtract(*np.array(pairs).T)) == 0:
        assert result.p is None and result.note
        return
    expected = ttest_rel(variant, baseline)
    for confidence in (0.95, 0.999):
        interval = expected.confidence_interval(confidence)
        # sums of up to 12 values below 300, whose rounding the interval can't see through
        assert result.interval(1 - confidence) == pytest.approx((interval.low, interval.high), rel=1e-9, abs=1e-9)
    assert result.p == pytest.approx(expected.pvalue, rel=1e-9)


@given(VALUES, st.floats(0.01, 1000))
def test_equivalence_is_statsmodels_tost(pairs: list[tuple[int, int]], margin: float) -> None:
    weightstats = pytest.importorskip("statsmodels.stats.weightstats")
    variant, baseline = np.array(pairs, np.float64).T / 7
    assume(np.ptp(np.subtract(*np.array(pairs).T)) > 0)
    expected = weightstats.ttost_paired(variant, baseline, -margin, margin)[0]
    assert paired(variant, baseline).p_equivalence(margin) == pytest.approx(expected, rel=1e-8, abs=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize("seeds", [2, 3, 5, 8])
def test_the_sign_flip_test_is_scipys_permutation_test(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    for shift in (0.0, 0.5, 2.0):
        variant, baseline = rng.normal(shift, size=seeds), rng.normal(size=seeds)
        expected = permutation_test(
            (variant, baseline),
            lambda own, other, axis: (own - other).mean(axis),
            permutation_type="samples",
            n_resamples=2**seeds,
            vectorized=True,
        )
        assert paired(variant, baseline).p_sign_flip == pytest.approx(expected.pvalue, abs=1e-12)  # type: ignore[arg-type]


def test_the_sign_flip_test_has_a_floor_and_knows_no_distribution() -> None:
    ones = [1.0, 1.5, 1.25, 1.125, 1.75, 1.0625]
    floors = [paired(ones[:seeds], [0.0] * seeds).p_sign_flip for seeds in range(2, 7)]
    assert floors == [0.5, 0.25, 0.125, 0.0625, 0.03125]
    assert paired([1.0] * 5, [0.0] * 5).p_sign_flip == 0.0625  # no spread, so no t-test
    many = np.random.default_rng(0).normal(0.55, size=40)
    assert paired(many, np.zeros(40)).p_sign_flip == pytest.approx(ttest_rel(many, np.zeros(40)).pvalue, abs=2e-3)  # type: ignore[arg-type]


def test_three_seeds_by_hand() -> None:
    # d = 1, 2, 3: mean 2, sd 1, t(0.975, 2) = 4.302653, half = 4.302653 / sqrt(3); t = 2 sqrt(3), and for two
    # degrees of freedom p = 1 - t / sqrt(t^2 + 2) = 1 - sqrt(6 / 7)
    result = paired([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (result.difference, result.deviation) == (2.0, 1.0)
    assert result.interval(ALPHA) == pytest.approx((-0.4841377, 4.4841377), abs=1e-6)
    assert result.p == pytest.approx(1 - math.sqrt(6 / 7))
    assert result.p_sign_flip == 0.25
    # one-sided, (2 - 3) / (1 / sqrt(3)) = -sqrt(3): p = (1 - t / sqrt(t^2 + 2)) / 2 = (1 - sqrt(3 / 5)) / 2
    assert result.p_equivalence(3.0) == pytest.approx((1 - math.sqrt(3 / 5)) / 2)


def test_pairing_takes_out_what_seeds_share() -> None:
    seeds = np.array([0.0, 10.0, -20.0, 5.0])
    low, _ = paired(seeds + np.array([1.0, 1.1, 0.9, 1.0]), seeds).interval(ALPHA)  # type: ignore[arg-type]
    assert low is not None and low > 0.8


def test_equal_values_have_an_interval_of_no_width() -> None:
    result = paired([1.5, 1.25], [1.5, 1.25])
    assert result[:5] == (2, 0.0, 0.0, None, None)
    assert result.interval(ALPHA) == (0.0, 0.0)
    assert "equal to the last bit" in result.note
    assert paired([1.5], [1.5]).interval(ALPHA) == (None, None)


def test_a_constant_difference_has_no_interval() -> None:
    result = paired([0.1 + 0.2, 0.7 + 0.2, 1.1 + 0.2], [0.1, 0.7, 1.1])  # equal but for rounding
    assert result.difference == pytest.approx(0.2)
    assert (*result.interval(ALPHA), result.p, result.p_equivalence(1.0)) == (None,) * 4
    assert "no variance" in result.note


def test_one_seed_and_none_have_no_interval() -> None:
    assert paired([2.0], [1.0])[:5] == (1, 1.0, None, None, None)
    assert paired([], [])[:5] == (0, None, None, None, None)


@given(st.lists(st.tuples(FLOATS, FLOATS), max_size=6), st.floats(0, 1e300))
def test_whatever_the_values_there_is_no_nan(pairs: list[tuple[float, float]], margin: float) -> None:
    result = paired([own for own, _ in pairs], [other for _, other in pairs])
    asked = [Asked(result, "lower"), Asked(result, "higher", margin)]
    json.dumps([result, judge(asked)], allow_nan=False)


# Holm


@given(P_VALUES)
def test_without_margins_holm_is_statsmodels(p_values: list[float]) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    rejected, expected, *_ = multitest.multipletests(p_values, ALPHA, "holm")
    adjusted, levels = holm(p_values, len(p_values))
    assert adjusted == pytest.approx(expected.tolist(), rel=1e-12)
    assert [p <= level for p, level in zip(p_values, levels, strict=True)] == rejected.tolist()


def test_no_multiplier_exceeds_the_number_that_can_be_true() -> None:
    # 3 verdicts with margins: 6 hypotheses, multipliers 3, 3, 3, 3, 2, 1
    adjusted, levels = holm([0.001, 0.01, 0.016, 0.9, 0.02, 0.5], 3)
    assert adjusted == pytest.approx([0.003, 0.03, 0.048, 1.0, 0.06, 1.0])
    assert levels == pytest.approx([0.05 / 3] * 6)
    adjusted, levels = holm([0.001, 0.01, 0.016, 0.02, 0.01, 0.015], 3)
    assert adjusted == pytest.approx([0.003, 0.03, 0.045, 0.045, 0.03, 0.045])
    assert levels == pytest.approx([0.05 / 3, 0.05 / 3, 0.05 / 2, 0.05, 0.05 / 3, 0.05 / 3])


@given(P_VALUES, st.randoms())
def test_holm_does_not_depend_on_the_order(p_values: list[float], random: Any) -> None:
    p_values = [*p_values, p_values[0]]  # a tie
    order = random.sample(range(len(p_values)), len(p_values))
    straight = [*zip(*holm(p_values, len(p_values)), strict=True)]
    shuffled = [*zip(*holm([p_values[place] for place in order], len(p_values)), strict=True)]
    assert shuffled == [straight[place] for place in order]
    assert straight[0] == straight[-1]


# Verdicts


def pairs_of(difference: float, deviation: float, seeds: int = 5) -> Paired:
    """Pairs with this mean and standard deviation."""
    rest = np.linspace(-1, 1, seeds)
    return paired(difference + deviation * rest / rest.std(ddof=1), np.zeros(seeds))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("difference", "margin", "lower", "higher"),
    [
        (-2.0, None, "better", "worse"),
        (2.0, None, "worse", "better"),
        (0.3, None, "undecided", "undecided"),
        (0.3, 2.0, "equivalent", "equivalent"),
        (2.0, 4.0, "equivalent", "equivalent"),  # proven to differ, but by less than matters
        (2.0, 2.5, "worse", "better"),
        (0.3, 1.0, "undecided", "undecided"),
    ],
)
def test_the_verdict_follows_the_tests_and_the_metrics_direction(
    difference: float, margin: float | None, lower: str, higher: str
) -> None:
    pairs = pairs_of(difference, 1.0)
    assert judge([Asked(pairs, "lower", margin)])[0].verdict == lower
    assert judge([Asked(pairs, "higher", margin)])[0].verdict == higher


def test_a_lone_verdict_is_the_plain_test() -> None:
    pairs = pairs_of(2.0, 1.0)
    (answer,) = judge([Asked(pairs, "lower")])
    assert (answer.p_adjusted, answer.confidence) == (pairs.p, 0.95)
    assert (answer.low, answer.high) == pairs.interval(0.05)
    (answer,) = judge([Asked(pairs_of(0.3, 1.0), "lower", 2.0)])
    assert answer.confidence == 0.9 and answer.p_equivalence == answer.p_equivalence_adjusted


def test_beside_others_the_same_pairs_prove_less() -> None:
    """p = 0.026 is enough alone and beside one that is proven anyhow, not beside one that isn't."""
    pairs = pairs_of(1.6, 1.0)
    assert pairs.p == pytest.approx(0.0233, abs=1e-4)
    assert judge([Asked(pairs, "lower")])[0].verdict == "worse"
    verdicts = [answer.verdict for answer in judge([Asked(pairs, "lower"), Asked(pairs_of(9.0, 1.0), "lower")])]
    assert verdicts == ["worse", "worse"]
    answers = judge([Asked(pairs, "lower"), Asked(pairs_of(0.1, 1.0), "lower"), Asked(pairs_of(0.2, 1.0), "lower")])
    assert [answer.verdict for answer in answers] == ["undecided"] * 3
    assert answers[0].p_adjusted == pytest.approx(3 * pairs.p) and answers[0].low < 0 < answers[0].high  # type: ignore[operator]


@pytest.mark.parametrize(
    ("difference", "margin", "barred", "expected"),
    [(-2.0, None, "better", "undecided"), (-2.0, None, "worse", "better"), (0.0, 2.0, "equivalent", "undecided")],
)
def test_what_is_barred_is_not_said(difference: float, margin: float | None, barred: Any, expected: str) -> None:
    (answer,) = judge([Asked(pairs_of(difference, 1.0), "lower", margin, frozenset({barred}))])
    assert answer.verdict == expected


def test_what_is_barred_helps_no_other() -> None:
    """A small p that proves nothing must not count as a rejection, after which Holm asks less of the rest."""
    sure, close = pairs_of(-9.0, 1.0), pairs_of(1.6, 1.0)
    barred = Asked(sure, "lower", None, frozenset({"better"}))
    answers = judge([barred, Asked(close, "lower"), Asked(pairs_of(0.1, 1.0), "lower")])
    assert [answer.verdict for answer in answers] == ["undecided"] * 3
    assert answers[0].p_adjusted is None and answers[1].p_adjusted == pytest.approx(3 * close.p)  # type: ignore[operator]


ASKED = st.lists(
    st.tuples(st.floats(-4, 4), st.floats(0.1, 3), st.sampled_from([None, 0.5, 1.0, 2.0]), st.integers(2, 12)),
    min_size=1,
    max_size=8,
)


@given(ASKED)
def test_intervals_say_what_verdicts_say(rows: list[tuple[float, float, float | None, int]]) -> None:
    asked = [Asked(pairs_of(mean, spread, seeds), "lower", margin) for mean, spread, margin, seeds in rows]
    for one, answer in zip(asked, judge(asked), strict=True):
        assert answer.low is not None and answer.high is not None
        inside = one.margin is not None and -one.margin < answer.low and answer.high < one.margin
        assert (answer.verdict == "equivalent") == inside
        if answer.verdict != "equivalent":
            assert (answer.verdict == "undecided") == (answer.low <= 0 <= answer.high)
            assert answer.verdict == "undecided" or (answer.high < 0) == (answer.verdict == "better")
        assert answer.confidence >= 0.9 - 1e-12
