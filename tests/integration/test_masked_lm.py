"""A masked language model through the whole of training: the mask's id, micro-batches, evaluation, and generation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from small_runs import finish, rows, small_recipe, start
from zoo.errors import UserError
from zoo.generation.text import continue_texts
from zoo.recipe import Recipe
from zoo.training.evaluate import evaluate
from zoo.training.metrics import Row
from zoo.training.run import load_run
from zoo.training.train import train

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))


def recipe(folder: Path, *overrides: str) -> Recipe:
    """Characters of lines in which each follows from its neighbours."""
    file = folder / "text.txt"
    file.write_text("".join(f"{number} abcdefgh {number}\n" for number in range(500)))
    values: dict[str, Any] = {
        "data": {
            "name": "text",
            "source": "files",
            "files": [str(file)],
            "length": 16,
            "validation": 0.2,
            "batch_size": 32,
            "tokenizer": "char",
        },
        "architecture": {"name": "bert", "layers": 1, "dim": 32, "heads": 2, "residual": "pre", "position": "rotary"},
        "task": "masked_lm",
        "optimizer": {"name": "adamw", "lr": 1e-2},
        "training": {"validate_every": 100, "log_every": 1},
        "trainer": {"max_steps": 300, "accelerator": "cpu", "devices": 1},
    }
    return Recipe.from_dict(values, overrides)


def test_hidden_characters_are_found_and_the_run_is_measured_as_it_was_trained(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = train(recipe(tmp_path), run)
    assert result["metrics"]["val_accuracy"] > 0.6  # the most frequent character makes 0.1
    loaded = load_run(run)
    assert loaded.tokenizer is not None
    assert loaded.model.config.vocab_size == loaded.tokenizer.vocab_size + 1  # a character set has no mask of its own
    assert evaluate(run)["metrics"]["val_loss"] == pytest.approx(result["metrics"]["val_loss"], rel=1e-6)
    with pytest.raises(UserError, match="so it can't generate"):
        continue_texts(loaded, ["abc"], max_new_tokens=3)


def losses(found: list[Row]) -> list[float]:
    return [row["train_loss"] for row in found if "train_loss" in row]


def test_micro_batches_change_nothing(tmp_path: Path) -> None:
    train(recipe(tmp_path, "trainer.max_steps=8"), tmp_path / "whole")
    train(recipe(tmp_path, "trainer.max_steps=8", "training.micro_batch_size=5"), tmp_path / "pieces")
    whole, pieces = losses(rows(tmp_path / "whole")), losses(rows(tmp_path / "pieces"))
    assert len(whole) == 8
    assert pieces == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize(
    ("strategy", "precision", "tolerance"), [("ddp", "64-true", 1e-11), ("fsdp2", "32-true", 1e-6)]
)
def test_two_ranks_equal_one(tmp_path: Path, strategy: str, precision: str, tolerance: float) -> None:
    """Also where a rank's rows have no hidden token at all, and the head is used on the rest alone."""
    bert = (
        "architecture={name: bert, layers: 2, dim: 16, heads: 2}",
        "task={name: masked_lm, rate: 0.05}",
        "trainer.max_steps=8",
        f"trainer.precision={precision}",
    )
    train(small_recipe(tmp_path, *bert), tmp_path / "one")
    ranks = ("trainer.devices=2", f"trainer.strategy={strategy}", "training.micro_batch_size=1")
    finish(start(tmp_path, tmp_path / "two", *bert, *ranks))
    one, two = rows(tmp_path / "one"), rows(tmp_path / "two")
    assert len(one) == 8
    for name in ("train_loss", "grad_norm", "val_loss", "val_accuracy"):
        want = [row.get(name, 0.0) for row in one]
        assert [row.get(name, 0.0) for row in two] == pytest.approx(want, rel=tolerance), name
