"""No metric depends on how many rows are measured at a time."""

from __future__ import annotations

import pytest

from zoo.recipe import load_recipe
from zoo.registry import Registry
from zoo.training.job import build_job
from zoo.training.module import TrainingModule
from zoo.training.trainer import RunLog, contained, make_trainer

REGISTRY = Registry.discover()
EXACT = ("trainer.precision=64-true", "trainer.accelerator=cpu", "trainer.devices=1")
PIECES = ("data.batch_size=1", "data.batch_size=7", "training.micro_batch_size=1", "training.micro_batch_size=3")


def measured(task: str, *overrides: str) -> dict[str, float]:
    """Metrics of a fresh model over a part of the task's data that no batch size divides."""
    recipe = load_recipe(f"matrix/{task}", [*EXACT, *overrides], registry=REGISTRY)
    with contained(recipe, RunLog()):
        job = build_job(recipe)
        _shorten(job.data, 23)
        module = TrainingModule(job)
        make_trainer(recipe, []).validate(module, verbose=False)
    return module.validated


def _shorten(data: object, rows: int) -> None:
    size = data.size  # type: ignore[attr-defined]
    data.size = lambda split: min(rows, size(split))  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    ["causal_lm", "masked_lm", "text_classification", "seq2seq", "image_classification", "patch_lm", "masked_patches"],
)
def test_metrics_do_not_depend_on_the_batch(task: str) -> None:
    expected = measured(task, "data.batch_size=23")
    assert len(expected) >= 1
    for override in PIECES:
        assert measured(task, override) == pytest.approx(expected, rel=1e-12, abs=1e-14), override
