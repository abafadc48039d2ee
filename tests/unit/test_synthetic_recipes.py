"""Recipes of made tasks: they build, their oracle is perfect, and a run keeps slices and chance as metrics."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from zoo.builder import build_data, check_buildable
from zoo.data.oracle import oracle_scores
from zoo.recipe import load_comparison, load_recipe
from zoo.training.evaluate import evaluate
from zoo.training.train import train

RECIPES = (
    "mqar",
    "copying",
    "selective_copying",
    "reverse",
    "sort",
    "addition",
    "induction",
    "hops",
    "listops",
    "parity",
    "dyck",
    "needle",
)
COMPARISONS = {"recall": "multi_head", "length": "learned", "parity": "learned"}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_builds_and_its_oracle_is_perfect(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    check_buildable(recipe)
    data = build_data(recipe, tmp_path)
    data.prepare()
    scores = oracle_scores(data, "test", samples=200)
    assert scores is not None
    assert (scores["accuracy"], scores["exact"]) == (1.0, 1.0)
    assert 0 < scores["chance"] <= 0.5
    assert not list(tmp_path.iterdir())  # nothing is stored


@pytest.mark.parametrize("name", COMPARISONS)
def test_every_cell_of_a_comparison_can_be_built(name: str) -> None:
    comparison = load_comparison(f"compare/{name}")
    assert comparison.baseline == COMPARISONS[name]
    for variant in comparison.variants:
        for task in comparison.tasks:
            check_buildable(comparison.recipe(variant, task, comparison.seeds[0]))


@pytest.mark.slow
def test_a_run_measures_slices_and_chance_whatever_the_batch_size(tmp_path: Path) -> None:
    small = ["architecture.dim=16", "data.validation=50", "data.test=50", "trainer.max_steps=2", "training.log_every=1"]
    small.append("schedule.warmup_steps=0")
    recipe = load_recipe("copying", [*small, "data.length=4", "data.test_length=6", "data.noise=2"])
    result = train(recipe, tmp_path / "run")
    metrics = result["metrics"]
    assert metrics["val_chance"] == 1 / 16
    assert {"val_accuracy_length_5", "val_exact_length_6"} <= metrics.keys()
    assert "val_accuracy_length_4" not in metrics  # validation has longer ones only
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[-1]["val_accuracy_length_6"] == str(metrics["val_accuracy_length_6"])
    assert rows[-1]["val_accuracy_length_4"] == ""
    assert rows[0]["train_accuracy_length_4"] != ""

    def measured(*overrides: str) -> dict[str, Any]:
        return evaluate(tmp_path / "run", overrides, "test")["metrics"]

    whole, apart = measured(), measured("data.batch_size=7")
    assert whole.keys() == apart.keys()
    assert whole.pop("test_loss") == pytest.approx(apart.pop("test_loss"), rel=1e-6)
    assert whole == apart
