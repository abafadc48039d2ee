"""The planner: power against statsmodels and integrals, plans that can't reach a verdict, what verdicts take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2, nct, norm
from scipy.stats import t as student_t

from zoo.comparison.power import MOST, POWER, check_plan, detectable, power_to_differ, power_to_equal, seeds_needed
from zoo.comparison.statistics import ALPHA, Paired, paired
from zoo.errors import UserError


def pairs_of(difference: float, deviation: float, seeds: int) -> Paired:
    """Pairs with this mean and standard deviation."""
    rest = np.linspace(-1, 1, seeds)
    return paired(difference + deviation * rest / rest.std(ddof=1), np.zeros(seeds))  # type: ignore[arg-type]


def plan(variants: int = 2, tasks: int = 1, seeds: int = 3, **more: Any) -> Any:
    names = {f"v{number}": {} for number in range(variants)}
    terms = {"equivalence": {}, "verdicts": True, **more}
    return SimpleNamespace(
        name="both", variants=names, tasks=dict.fromkeys("abcdef"[:tasks]), seeds=range(seeds), baseline="v0", **terms
    )


# Power


@pytest.mark.parametrize(("ratio", "seeds"), [(0.0, 4), (0.5, 10), (1.0, 5), (3.0, 3), (12.0, 2), (0.1, 900)])
@pytest.mark.parametrize("alpha", [ALPHA, ALPHA / 12])
def test_power_to_differ_is_statsmodels(ratio: float, seeds: int, alpha: float) -> None:
    power = pytest.importorskip("statsmodels.stats.power")
    expected = power.ttest_power(ratio, seeds, alpha / 2, alternative="larger")  # rejections on the wrong side left out
    # 64 nodes: half a step of probability where 2 pairs make a step of the integrand
    assert float(power_to_differ(np.array(ratio), seeds, alpha)) == pytest.approx(expected, abs=0.008)
    assert float(power_to_differ(np.array(-ratio), seeds, alpha)) == pytest.approx(expected, abs=0.008)


@pytest.mark.parametrize(("ratio", "margin", "seeds"), [(0.0, 1.0, 10), (0.5, 1.0, 20), (0.0, 2.0, 5), (1.0, 1.0, 30)])
def test_power_to_equal_is_owens_integral(ratio: float, margin: float, seeds: int) -> None:
    freedom, bound, root = seeds - 1, student_t.ppf(0.95, seeds - 1), np.sqrt(seeds)

    def at(square: float) -> float:
        spread = bound * np.sqrt(square / freedom)
        inside = norm.cdf(root * (margin - ratio) - spread) - norm.cdf(spread - root * (margin + ratio))
        return float(max(inside, 0) * chi2.pdf(square, freedom))

    expected = quad(at, 0, chi2.ppf(1 - 1e-12, freedom), limit=400)[0]
    found = power_to_equal(np.array([ratio]), np.array([margin]), seeds, ALPHA)
    assert float(found[0]) == pytest.approx(expected, abs=2e-3)


def test_a_detectable_difference_is_found_as_often_as_promised() -> None:
    power = pytest.importorskip("statsmodels.stats.power")
    for seeds, alpha in ((2, ALPHA), (3, ALPHA / 12), (5, ALPHA), (30, ALPHA)):
        size = detectable(seeds, alpha)
        assert power.ttest_power(size, seeds, alpha / 2, alternative="larger") == pytest.approx(POWER, abs=0.008)
    assert detectable(5, ALPHA) < detectable(5, ALPHA / 12) < detectable(3, ALPHA / 12)
    assert detectable(5, ALPHA, pilot=5) > detectable(5, ALPHA, pilot=50) > detectable(5, ALPHA)


# Before a run


def test_one_seed_is_refused_unless_no_verdict_is_wanted() -> None:
    with pytest.raises(UserError, match=r"1 seed can't lead to a verdict(.|\n)*compare\.verdicts: false"):
        check_plan(plan(seeds=1))
    assert check_plan(plan(seeds=1, verdicts=False)) == ["no verdict is asked for (compare.verdicts: false)"]


def test_the_plan_says_what_it_can_find() -> None:
    sizes, signs = check_plan(plan(variants=4, tasks=4, seeds=5))
    assert sizes.startswith("5 seeds, 12 verdicts: with probability 0.8 a difference is found that is ")
    assert f"{detectable(5, ALPHA / 12):.3g} times its own spread" in sizes
    assert "5 pairs a sign-flip test can't go below p = 0.0625; 9 pairs would reach the 0.0042" in signs
    assert len(check_plan(plan(seeds=6))) == 1  # 2 / 2^6 = 0.03
    assert len(check_plan(plan(seeds=5))) == 2


def test_the_baselines_spread_turns_it_into_the_metrics_unit() -> None:
    _, said = check_plan(plan(seeds=6, equivalence={"a": 0.05}), {"a": 0.01})
    found = detectable(6, ALPHA) * 2**0.5 * 0.01
    assert f"a: the baseline's spread over seeds is 0.01, so a difference of {found:.3g} would be found" in said
    seeds = int(said.split("takes ")[1].split()[0])
    powers = [float(power_to_differ(np.array(0.05 / 0.01 / 2**0.5), count, ALPHA)) for count in (seeds - 1, seeds)]
    assert powers[0] < POWER <= powers[1]


# After a run


def promised(pairs: Paired, margin: float, seeds: int) -> tuple[float, float]:
    """Power to find a difference of the margin and the absence of one, over the spreads that the pairs leave open."""
    assert pairs.deviation
    squares = chi2.ppf((np.arange(2000) + 0.5) / 2000, pairs.seeds - 1) / (pairs.seeds - 1)
    ratios = margin / pairs.deviation * np.sqrt(squares)
    zeros = np.zeros(1)
    return (
        float(power_to_differ(ratios, seeds, ALPHA).mean()),
        float(power_to_equal(zeros, ratios, seeds, ALPHA).mean()),
    )


@pytest.mark.parametrize(("deviation", "seeds"), [(1.0, 3), (0.5, 5), (2.0, 10)])
def test_with_a_margin_both_answers_are_planned_for(deviation: float, seeds: int) -> None:
    pairs = pairs_of(0.2, deviation, seeds)
    need = seeds_needed(pairs, 1.0, ALPHA)
    assert need is not None and need.size == "margin" and need.seeds is not None
    assert min(promised(pairs, 1.0, seeds + need.seeds)) > POWER - 0.005
    assert min(promised(pairs, 1.0, seeds + need.seeds - 1)) < POWER + 0.005


def test_without_a_margin_the_observed_difference_is_planned_for() -> None:
    near, far = (seeds_needed(pairs_of(size, 1.0, 5), None, ALPHA) for size in (0.3, 0.9))
    assert near is not None and far is not None and near.size == far.size == "observed"
    assert near.seeds is not None and far.seeds is not None and near.seeds > 5 * far.seeds > 0
    # Julious and Owen's n for the normal test, with 4 degrees of freedom; the t-test takes a little more
    normal = (nct.ppf(POWER, 4, norm.ppf(0.975)) / 0.3) ** 2
    assert normal < near.seeds + 5 < normal + 5


def test_more_than_there_can_be_is_said_to_be_more() -> None:
    need = seeds_needed(pairs_of(0.01, 1.0, 5), None, ALPHA)
    assert need is not None and need.seeds is None
    assert seeds_needed(pairs_of(0.0, 1.0, 5), None, ALPHA) == need
    needs = [seeds_needed(pairs_of(size, 1.0, 5), None, ALPHA) for size in np.linspace(0.1, 0.2, 40)]
    first = next(need.seeds for need in needs if need and need.seeds)
    assert needs[0] and needs[0].seeds is None and MOST * 0.9 < first <= MOST


def test_pairs_that_are_enough_for_the_margin_are_told_about_the_difference_they_show() -> None:
    pairs = pairs_of(0.7, 1.0, 30)
    need = seeds_needed(pairs, 1.0, ALPHA)
    assert need is not None and need.size == "observed" and need.seeds is not None


@pytest.mark.parametrize("pairs", [paired([1.0], [2.0]), paired([1.0, 2.0], [1.0, 2.0]), paired([], [])])
def test_without_a_spread_nothing_can_be_planned(pairs: Paired) -> None:
    assert seeds_needed(pairs, 1.0, ALPHA) is None


def test_fewer_verdicts_or_a_smaller_spread_take_fewer_seeds() -> None:
    def needed(deviation: float, alpha: float) -> int:
        need = seeds_needed(pairs_of(0.2, deviation, 5), 1.0, alpha)
        assert need is not None and need.seeds is not None
        return need.seeds

    assert needed(0.5, ALPHA) < needed(1.0, ALPHA) < needed(1.0, ALPHA / 10)
