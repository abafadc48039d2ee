"""One process or two, one micro-batch or four: the same losses, gradients and metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from small_runs import finish, rows, small_recipe, start
from zoo.training.metrics import Row
from zoo.training.run import load_run
from zoo.training.train import train

pytestmark = pytest.mark.slow

WIDE = "trainer.precision=64-true"
COMPARED = ("train_loss", "grad_norm", "val_loss", "val_accuracy", "tokens", "lr")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    """One process, all rows at once, in float32 and float64."""
    folder = tmp_path_factory.mktemp("reference")
    result = {}
    for name, overrides in {"32": (), "64": (WIDE,)}.items():
        train(small_recipe(folder, *overrides), folder / name)
        result[name] = rows(folder / name)
    return result


def check_equal(run: Path, expected: list[Row], tolerance: float) -> None:
    found = rows(run)
    assert [row["step"] for row in found] == list(range(1, 21))
    for mine, theirs in zip(found, expected, strict=True):
        for name in COMPARED:
            assert mine.get(name, 0.0) == pytest.approx(theirs.get(name, 0.0), rel=tolerance), (mine["step"], name)


@pytest.mark.parametrize("micro", [1, 2, 3, 4])
def test_micro_batches_change_nothing(tmp_path: Path, reference: dict[str, list[Row]], micro: int) -> None:
    train(small_recipe(tmp_path, WIDE, f"training.micro_batch_size={micro}"), tmp_path / "run")
    check_equal(tmp_path / "run", reference["64"], 1e-11)


@pytest.mark.parametrize(
    ("strategy", "micro", "precision", "tolerance"),
    [("ddp", "null", "32", 1e-6), ("ddp", "2", "32", 1e-6), ("ddp", "1", "64", 1e-11), ("fsdp2", "1", "32", 1e-6)],
)
def test_two_ranks_equal_one(
    tmp_path: Path, reference: dict[str, list[Row]], strategy: str, micro: str, precision: str, tolerance: float
) -> None:
    output = finish(
        start(
            tmp_path,
            tmp_path / "run",
            "trainer.devices=2",
            f"trainer.strategy={strategy}",
            f"training.micro_batch_size={micro}",
            f"trainer.precision={precision}-true",
        )
    )
    assert json.loads(output)["status"] == "completed"  # printed once, by the first rank
    if precision == "32":
        losses = [row["train_loss"] for row in rows(tmp_path / "run")]
        assert losses == pytest.approx([row["train_loss"] for row in reference["32"]], rel=tolerance)
    else:
        check_equal(tmp_path / "run", reference[precision], tolerance)
    assert load_run(tmp_path / "run").step == 20


def test_a_batch_that_two_ranks_cannot_share_evenly_has_the_same_losses(tmp_path: Path) -> None:
    train(small_recipe(tmp_path, WIDE, "data.batch_size=7"), tmp_path / "one")
    finish(start(tmp_path, tmp_path / "two", WIDE, "data.batch_size=7", "trainer.devices=2", "trainer.strategy=ddp"))
    check_equal(tmp_path / "two", rows(tmp_path / "one"), 1e-11)


def test_a_run_goes_on_with_another_number_of_ranks_and_another_strategy_and_back(
    tmp_path: Path, reference: dict[str, list[Row]]
) -> None:
    run = tmp_path / "run"
    train(small_recipe(tmp_path), run)
    keep_checkpoints(run, 4, 8)
    finish(start(tmp_path, run, "--resume", "trainer.devices=2", "trainer.strategy=fsdp2"))
    keep_checkpoints(run, 12)
    train(small_recipe(tmp_path), run, resume=True)
    losses = [row["train_loss"] for row in rows(run)]
    assert losses == pytest.approx([row["train_loss"] for row in reference["32"]], rel=1e-6)


def keep_checkpoints(run: Path, *steps: int) -> None:
    for file in (run / "checkpoints").glob("step-*.ckpt"):
        if file.name not in {f"step-{step}.ckpt" for step in steps}:
            file.unlink()
