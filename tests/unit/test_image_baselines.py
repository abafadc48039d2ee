"""The image baselines: the same parts as the recipe's, and what can be worked out by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from zoo.builder import build_model
from zoo.recipe import Recipe
from zoo.training.job import prepare_task

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "image_baselines.py"


def load_benchmark() -> ModuleType:
    """Benchmarks are scripts, not a package, so this one is loaded from its path."""
    spec = importlib.util.spec_from_file_location("image_baselines", BENCHMARK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


image_baselines = load_benchmark()
PATCHES = {"name": "patches", "patch_size": [2, 2]}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))


def recipe(task: object, *overrides: str, name: str = "vit", head: str = "classification") -> Recipe:
    """A tiny model of digits."""
    sizes = {"name": name, "layers": 2, "dim": 16, "heads": 2, "embedding": PATCHES, "head": head}
    values = {"data": {"name": "images"}, "architecture": sizes, "task": task, "trainer": {"max_steps": 2}}
    return Recipe.from_dict(values, overrides)


def test_classifiers_of_scikit_learn_know_digits() -> None:
    found = {
        name: share for name, share, _ in image_baselines.sklearn_accuracies(recipe("image_classification"), "test")
    }
    assert found["SVC, RBF kernel"] > 0.97
    assert len(found) == len(image_baselines.classifiers(0))


def test_timms_model_has_the_size_of_ours_and_learns_from_the_same_loop() -> None:
    made = recipe("image_classification", "trainer.max_steps=3")
    task = prepare_task(made)
    theirs, ours = image_baselines.TimmViT(made, task), build_model(made, task.describe())
    assert sum(p.numel() for p in theirs.parameters()) == sum(p.numel() for p in ours.parameters())
    before = theirs.timm.head.weight.clone()
    image_baselines.trained(theirs, made, task)
    assert not torch.equal(theirs.timm.head.weight, before)
    assert 0 <= image_baselines.accuracy_of(theirs, task, "validation") <= 1


@pytest.mark.parametrize(
    ("task", "name"), [("patch_lm", "gpt2"), ({"name": "masked_patches", "patch_size": [2, 2]}, "vit")]
)
def test_a_regression_explains_more_than_the_mean_of_each_pixel(task: object, name: str) -> None:
    made = recipe(task, name=name, head="pixels")
    found = [share for _, share, _ in image_baselines.explained_variances(made, "validation")]
    assert 0 < found[0] < found[1] < 1


def test_the_first_patch_is_predicted_by_its_mean() -> None:
    made = recipe("patch_lm", name="gpt2", head="pixels")
    first, *_ = image_baselines.next_patches(made, prepare_task(made), "validation")
    seen, pixels, held_seen, held, counted = first
    assert not seen.any() and not held_seen.any() and counted.all()
    np.testing.assert_allclose(
        image_baselines.Ridge().fit(seen, pixels).predict(held_seen)[0], pixels.mean(0), atol=1e-5
    )
    assert held.shape[1] == 4
