"""Verdicts of a comparison from its cells: what counts, what is missing, what an undecided one would take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from made_up_cells import BETTER, CLOSE, PLAIN, WORSE, Recipe, comparison, row, shifted
from zoo.comparison.cells import Cell
from zoo.comparison.power import detectable
from zoo.comparison.statistics import ALPHA
from zoo.comparison.verdicts import baseline_spreads, verdicts

FIELDS = {
    "task", "variant", "baseline", "metric", "difference", "low", "high", "p", "p_adjusted", "confidence", "margin",
    "seeds", "seeds_needed", "minutes_needed", "verdict",
}  # fmt: skip
"""That scripts rely on."""


def one(
    values: Sequence[float | str | None], against: Sequence[float | str | None] = PLAIN, **more: Any
) -> dict[str, Any]:
    """The verdict about one variant."""
    (found,) = verdicts(comparison("other", **more), row("plain", against) + row("other", values))
    json.dumps(found, allow_nan=False)
    assert set(found) >= FIELDS
    return found


def test_better_worse_equivalent_and_undecided() -> None:
    assert one(BETTER)["verdict"] == "better"
    assert one(WORSE)["verdict"] == "worse"
    assert one(CLOSE)["verdict"] == "undecided"
    assert one(CLOSE, equivalence={"text": 0.05})["verdict"] == "equivalent"
    assert one(CLOSE, equivalence={"text": 0.005})["verdict"] == "undecided"
    assert one(CLOSE, equivalence={"other": 0.05})["margin"] is None


def test_a_difference_that_is_proven_but_does_not_matter() -> None:
    found = one(BETTER, equivalence={"text": 1.0})
    assert (found["verdict"], found["margin"], found["note"]) == ("equivalent", 1.0, "better by less than the margin")
    assert -1 < found["low"] < found["high"] < 0 and found["confidence"] == pytest.approx(0.9)


def test_a_metric_of_which_more_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recipe, "metrics", {"accuracy": "higher", "loss": "lower"})
    found = one(BETTER)  # of the loss, so more of the accuracy
    assert (found["metric"], found["better"], found["verdict"]) == ("val_accuracy", "higher", "better")
    assert found["difference"] == pytest.approx(0.0505)


def test_a_tuned_comparison_is_about_the_test_part_and_reported_cells() -> None:
    cells = row("plain", PLAIN) + row("other", BETTER)
    for cell in cells:
        cell.result["metrics"] = {"val_loss": 9.0, "test_loss": cell.metrics["val_loss"]}
    tuning = row("plain", [5.0, 5.0]) + row("other", [0.0, 0.0])
    for number, cell in enumerate(tuning):
        cell.phase, cell.seed = "tune", 100 + number
    (found,) = verdicts(comparison("other", tune={"optimizer.lr": [1, 2]}), tuning + cells)
    assert (found["metric"], found["verdict"], found["seeds"]) == ("test_loss", "better", 4)


def test_all_verdicts_are_one_family() -> None:
    alone = one(shifted(-0.05, -0.06, -0.03, -0.08))
    assert alone["verdict"] == "better" and alone["p_adjusted"] == alone["p"]
    cells = [
        *row("plain", PLAIN), *row("plain", PLAIN, "code"),
        *row("other", shifted(-0.05, -0.06, -0.03, -0.08)), *row("other", CLOSE, "code"),
        *row("third", CLOSE), *row("third", CLOSE[::-1], "code"),
    ]  # fmt: skip
    found = verdicts(comparison("other", "third", tasks=("text", "code")), cells)
    assert [(verdict["task"], verdict["variant"]) for verdict in found] == [
        ("text", "other"), ("text", "third"), ("code", "other"), ("code", "third"),
    ]  # fmt: skip
    assert found[0]["p"] == alone["p"] and found[0]["p_adjusted"] == pytest.approx(4 * alone["p"])
    assert {verdict["confidence"] for verdict in found} == {1 - ALPHA / 4}


def test_what_cannot_run_is_no_part_of_the_family() -> None:
    cells = row("plain", PLAIN) + row("other", BETTER) + row("odd", ["invalid"] * 4)
    better, odd = verdicts(comparison("other", "odd"), cells)
    assert better["p_adjusted"] == better["p"]
    assert (odd["verdict"], odd["difference"], odd["p"], odd["seeds"]) == ("undecided", None, None, 0)
    assert odd["note"] == "no seed that both completed; variant: 4 invalid"


def test_the_order_of_variants_cells_and_seeds_changes_no_number() -> None:
    cells = row("plain", PLAIN) + row("other", BETTER) + row("third", CLOSE)
    straight = verdicts(comparison("other", "third"), cells)
    turned = verdicts(comparison("third", "other"), cells[::-1])
    assert turned == straight[::-1]


# Runs that are missing


@pytest.mark.parametrize("state", ["diverged", "failed", None, float("nan"), float("inf")])
def test_a_variant_that_lost_a_seed_is_never_better_or_equivalent(state: Any) -> None:
    found = one([*BETTER[:3], state])
    assert (found["verdict"], found["p_adjusted"], found["seeds"]) == ("undecided", None, 3)
    assert found["high"] < 0 and found["p"] < ALPHA and "variant: 1 " in found["note"]
    assert one([*CLOSE[:3], state], equivalence={"text": 1.0})["verdict"] == "undecided"
    assert one([*WORSE[:3], state])["verdict"] == "worse"


@pytest.mark.parametrize("state", ["diverged", "failed"])
def test_beside_a_baseline_that_lost_a_seed_a_variant_is_never_worse_or_equivalent(state: str) -> None:
    against = [*PLAIN[:3], state]
    assert one(WORSE, against)["verdict"] == "undecided"
    assert one(CLOSE, against, equivalence={"text": 1.0})["verdict"] == "undecided"
    found = one(BETTER, against)
    assert found["verdict"] == "better" and found["note"] == f"baseline: 1 {state}"


def test_a_seed_that_both_lost_is_left_out() -> None:
    found = one([*BETTER[:3], "diverged"], [*PLAIN[:3], "diverged"])
    assert (found["verdict"], found["seeds"], found["note"]) == ("better", 3, "")


@pytest.mark.parametrize("state", ["planned", "interrupted"])
def test_while_cells_wait_nothing_is_decided(state: str) -> None:
    for found in (one([*BETTER[:3], state]), one(BETTER, [*PLAIN[:3], state])):
        assert (found["verdict"], found["seeds_needed"], found["note"]) == ("undecided", None, "3 of 4 seeds so far")
        assert found["difference"] < 0
    assert one([*CLOSE[:3], state], equivalence={"text": 1.0})["verdict"] == "undecided"


def test_without_any_recipe_there_is_no_metric() -> None:
    cells = [Cell(name, "text", seed, status="invalid") for name in ("plain", "other") for seed in range(2)]
    (found,) = verdicts(comparison("other"), cells)
    assert (found["metric"], found["verdict"], found["noise"]) == (None, "undecided", None)


def test_identical_runs_are_named_and_told_from_a_metric_at_its_limit() -> None:
    found = one(PLAIN, equivalence={"text": 0.1})
    assert (found["difference"], found["low"], found["high"], found["p"]) == (0.0, 0.0, 0.0, None)
    assert found["verdict"] == "undecided" and found["seeds_needed"] is None
    assert found["note"] == "identical runs: equal to the last bit in every seed"
    cells = row("plain", PLAIN) + row("other", PLAIN)
    cells[-1].metrics["val_accuracy"] = 0.0
    (found,) = verdicts(comparison("other"), cells)
    assert found["note"] == "val_loss is equal to the last bit in every seed, other metrics differ"


def test_one_seed_gives_a_difference_and_no_verdict() -> None:
    found = one([1.0], [2.0])
    assert (found["difference"], found["low"], found["p"], found["verdict"]) == (-1.0, None, None, "undecided")
    assert found["note"] == "one seed: an interval needs at least 2"


def test_who_wants_no_verdict_gets_none() -> None:
    found = one(BETTER, verdicts=False)
    assert (found["verdict"], found["p_adjusted"], found["seeds_needed"]) == ("undecided", None, None)
    assert found["confidence"] == 0.95 and found["high"] < 0 and found["note"] == "no verdict was asked for"


# What it would take


def test_an_undecided_verdict_says_how_many_seeds_and_minutes_it_takes() -> None:
    cells = row("plain", PLAIN, wall_s=90) + row("other", CLOSE, wall_s=30)
    (found,) = verdicts(comparison("other", equivalence={"text": 0.01}), cells)
    more = found["seeds_needed"]
    assert 5 < more < 50 and found["minutes_needed"] == pytest.approx(2 * more)
    assert found["note"] == f"undecided: {more} more seeds, about {2 * more} minutes, for a difference of the margin"
    (found,) = verdicts(comparison("other"), cells)
    assert found["note"].endswith(", for a difference as large as the observed one")


@pytest.mark.parametrize(
    ("wall_s", "said"), [(0.1, ", under a minute,"), (3000.0, " hours,"), (None, " more seeds, for a difference")]
)
def test_the_time_is_in_units_that_people_use(wall_s: Any, said: str) -> None:
    cells = row("plain", PLAIN, wall_s=wall_s) + row("other", CLOSE, wall_s=wall_s)
    (found,) = verdicts(comparison("other", equivalence={"text": 0.01}), cells)
    assert said in found["note"]
    assert (found["minutes_needed"] is None) == (wall_s is None)


def test_costs_go_before_what_the_run_wrote_down() -> None:
    cells = row("plain", PLAIN, wall_s=1) + row("other", CLOSE, wall_s=1)
    for cell in cells:
        cell.costs = {"wall_s": 60.0}
    (found,) = verdicts(comparison("other", equivalence={"text": 0.01}), cells)
    assert found["minutes_needed"] == pytest.approx(2 * found["seeds_needed"])


def test_a_verdict_out_of_reach_says_so() -> None:
    found = one(shifted(0.1, -0.1, 0.1, -0.1001))
    assert (found["seeds_needed"], found["minutes_needed"]) == (None, None)
    assert found["note"] == "undecided: more than 1,000 more seeds, for a difference as large as the observed one"


# The noise floor


def test_the_noise_floor_is_what_the_baseline_would_differ_by_from_itself() -> None:
    found = one(CLOSE)
    # values 2.0, 2.1, 2.3, 2.2: standard deviation 0.1290994; t(0.975, 3) = 3.182446; times sqrt(2 / 4)
    assert found["noise"] == pytest.approx(3.182446 * 0.1290994 * 0.5**0.5, rel=1e-6)
    assert found["detectable"] == pytest.approx(detectable(4, ALPHA, 4) * 0.1290994 * 2**0.5, rel=1e-6)
    assert one([1.0], [2.0])["noise"] is None


def test_spreads_of_the_baseline_go_to_the_planner() -> None:
    cells = row("plain", PLAIN) + row("other", CLOSE) + row("plain", [1.0], "code")
    assert baseline_spreads(comparison("other", tasks=("text", "code")), cells) == {"text": pytest.approx(0.1290994)}


def test_a_verdict_that_rests_on_normality_says_so() -> None:
    """5 of 6 differences near 1, the last just below 0: 2 of the 32 ways to sign them add up to as much."""
    found = one([-0.05, 1.0, 1.1, 0.9, 1.0, 1.05], [0.0] * 6)
    assert (found["verdict"], found["p_sign_flip"]) == ("worse", 0.0625) and found["p"] < 0.01
    assert found["note"] == "a sign-flip test doesn't confirm it: p = 0.062"
    assert one([0.05, 1.0, 1.1, 0.9, 1.0, 1.05], [0.0] * 6)["note"] == ""
