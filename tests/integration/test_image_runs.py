"""Image tasks through training: one process or two, any micro-batches, the same losses; digits are learned."""

from __future__ import annotations

from pathlib import Path

import pytest

from small_runs import finish, rows, small_recipe, start
from zoo.training.evaluate import evaluate
from zoo.training.train import train

pytestmark = pytest.mark.slow

PATCHES = "embedding: {name: patches, patch_size: [2, 2], registers: 1}"
DIGITS = (
    "data={name: images, source: digits, batch_size: 9, shift: 1}",  # two ranks can't share nine rows evenly
    "trainer.max_steps=6",
)
TASKS = {
    "classes": (
        f"architecture={{name: vit, layers: 2, dim: 32, heads: 2, {PATCHES}}}",
        "task={name: image_classification, label_smoothing: 0.1, mixup: 0.8, cutmix: 1.0}",
    ),
    "hidden": (
        f"architecture={{name: vit, layers: 2, dim: 16, heads: 2, {PATCHES}, head: pixels}}",
        "task={name: masked_patches, patch_size: [2, 2]}",
    ),
    "next": (
        f"architecture={{name: gpt2, layers: 2, dim: 16, heads: 2, {PATCHES}, head: pixels}}",
        "task=patch_lm",
    ),
}
COMPARED = ("train_loss", "grad_norm", "val_loss")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", TASKS)
def test_micro_batches_and_ranks_change_nothing(tmp_path: Path, name: str) -> None:
    """Under DDP, so every parameter has a gradient in every step, without a search for unused ones."""
    overrides = (*DIGITS, *TASKS[name], "trainer.precision=64-true")
    train(small_recipe(tmp_path, *overrides), tmp_path / "whole")
    train(small_recipe(tmp_path, *overrides, "training.micro_batch_size=4"), tmp_path / "pieces")
    two = ("trainer.devices=2", "trainer.strategy=ddp", "training.micro_batch_size=2")
    finish(start(tmp_path, tmp_path / "ranks", *overrides, *two))
    expected = rows(tmp_path / "whole")
    assert [row["step"] for row in expected] == [1, 2, 3, 4, 5, 6]
    for run in ("pieces", "ranks"):
        for mine, theirs in zip(rows(tmp_path / run), expected, strict=True):
            for metric in COMPARED:
                assert mine.get(metric, 0.0) == pytest.approx(theirs.get(metric, 0.0), rel=1e-6), (run, metric)


def test_digits_are_learned_and_the_run_is_measured_as_it_was_trained(tmp_path: Path) -> None:
    overrides = [*DIGITS, *TASKS["classes"], "trainer.max_steps=150", "data.batch_size=64", "data.shift=0"]
    overrides += ["task.mixup=0", "task.cutmix=0", "training.validate_every=150"]
    result = train(small_recipe(tmp_path, *overrides), tmp_path / "run")
    assert result["metrics"]["val_accuracy"] > 0.8  # chance is 0.1
    again = evaluate(tmp_path / "run")["metrics"]
    assert again["val_loss"] == pytest.approx(result["metrics"]["val_loss"], rel=1e-6)
