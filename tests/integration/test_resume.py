"""A run that was stopped, by whatever, goes on as if it had not been."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from small_runs import rows, small_recipe, start, write_recipe
from zoo.errors import Diverged, RunFailed, UserError
from zoo.recipe import load_recipe
from zoo.training.evaluate import evaluate
from zoo.training.files import write_bytes
from zoo.training.run import load_run
from zoo.training.train import train

pytestmark = pytest.mark.slow

DROPOUT = "architecture.dropout=0.1"
LONG = (
    DROPOUT,
    "schedule=constant",
    "trainer.max_steps=300",
    "training.save_every=50",
    "training.validate_every=50",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 steps with dropout that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    train(small_recipe(folder, DROPOUT), folder / "run")
    return folder / "run"


@pytest.fixture
def stopped(tmp_path: Path, whole: Path) -> Path:
    """The same as a crash after step 9 leaves it: the newest checkpoint is of step 8."""
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    for name in ("model.safetensors", "result.json", *(f"checkpoints/step-{step}.ckpt" for step in (12, 16, 20))):
        (run / name).unlink()
    lines = (run / "metrics.csv").read_text().splitlines(keepends=True)
    write_bytes(run / "metrics.csv", "".join([*lines[:10], lines[10][:7]]).encode())
    return run


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_run(run).model.state_dict()


def check_same(run: Path, whole: Path) -> None:
    """Every metric of every step, and every weight, to the last bit."""
    assert rows(run) == rows(whole)
    mine, theirs = weights(run), weights(whole)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_resumed_run_is_bit_equal_to_one_that_never_stopped(tmp_path: Path, stopped: Path, whole: Path) -> None:
    clock = json.loads((whole / "result.json").read_text())["wall_s"]
    result = train(small_recipe(tmp_path, DROPOUT), stopped, resume=True)
    check_same(stopped, whole)
    assert (result["status"], result["steps"]) == ("completed", 20)
    assert result["best"] == json.loads((whole / "result.json").read_text())["best"]
    assert result["wall_s"] > 0.2 * clock  # the clock goes on from the checkpoint


def test_workers_change_nothing(tmp_path: Path, stopped: Path, whole: Path) -> None:
    train(small_recipe(tmp_path, DROPOUT, "training.workers=2"), stopped, resume=True)
    check_same(stopped, whole)


def test_a_run_folder_can_be_moved_and_resumed_by_itself(tmp_path: Path, stopped: Path, whole: Path) -> None:
    moved = tmp_path / "elsewhere" / "moved"
    moved.parent.mkdir()
    stopped.rename(moved)
    train(load_recipe(moved), moved, resume=True)
    check_same(moved, whole)
    assert load_run(moved, step="best").step == json.loads((moved / "result.json").read_text())["best"]["step"]


def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(tmp_path: Path, stopped: Path, whole: Path) -> None:
    newest = stopped / "checkpoints" / "step-8.ckpt"
    newest.write_bytes(newest.read_bytes()[:5000])
    train(small_recipe(tmp_path, DROPOUT), stopped, resume=True)
    check_same(stopped, whole)
    assert "step-8.ckpt can't be read" in (stopped / "log.txt").read_text()


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_over(
    tmp_path: Path, stopped: Path, whole: Path
) -> None:
    shutil.rmtree(stopped / "checkpoints")
    train(small_recipe(tmp_path, DROPOUT), stopped, resume=True)
    check_same(stopped, whole)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 300 steps that nothing stopped."""
    folder = tmp_path_factory.mktemp("long")
    train(small_recipe(folder, *LONG), folder / "run")
    return folder / "run"


def stop_at_step(process: subprocess.Popen[str], run: Path, step: int, number: signal.Signals) -> str:
    """Signal a whole process group, as a terminal does, when a step is done; what it wrote to standard error."""
    while not (run / "metrics.csv").exists() or len(rows(run)) < step:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.killpg(process.pid, number)
    output, error = process.communicate(timeout=120)
    assert output == ""
    return error


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_signal_costs_at_most_the_steps_since_the_last_checkpoint(
    tmp_path: Path, long_run: Path, number: signal.Signals, code: int
) -> None:
    run = tmp_path / "run"
    process = start(tmp_path, run, *LONG, start_new_session=True)
    error = stop_at_step(process, run, 60, number)
    assert process.returncode == code
    assert "Traceback" not in error
    if number != signal.SIGKILL:
        step = int(rows(run)[-1]["step"])
        result = json.loads((run / "result.json").read_text())
        assert (result["status"], result["steps"]) == ("interrupted", step)
        assert load_run(run).step == step
    train(small_recipe(tmp_path, *LONG), run, resume=True)
    check_same(run, long_run)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_two_ranks_stop_at_the_same_step(tmp_path: Path, number: signal.Signals, code: int) -> None:
    run = tmp_path / "run"
    ranks = ("trainer.devices=2", "trainer.strategy=ddp", "trainer.max_steps=100000")
    process = start(tmp_path, run, *LONG, *ranks, start_new_session=True)
    error = stop_at_step(process, run, 10, number)
    assert process.returncode == code
    assert "Traceback" not in error
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["steps"]) == ("interrupted", load_run(run).step)


def test_a_validation_that_a_stop_prevented_is_made_up_for(tmp_path: Path, stopped: Path, whole: Path) -> None:
    path = stopped / "checkpoints" / "step-8.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["zoo"]["measured"] = {"step": 4}
    checkpoint["zoo"]["row"] = {k: v for k, v in checkpoint["zoo"]["row"].items() if not k.startswith("val_")}
    torch.save(checkpoint, path)
    train(small_recipe(tmp_path, DROPOUT), stopped, resume=True)
    check_same(stopped, whole)


def test_a_finished_run_says_so(tmp_path: Path, whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    with pytest.raises(UserError, match="already at max_steps=20"):
        train(small_recipe(tmp_path, DROPOUT), whole, resume=True)
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_a_finished_run_can_be_made_longer(tmp_path: Path) -> None:
    constant = "schedule=constant"
    train(small_recipe(tmp_path, constant, "trainer.max_steps=8"), tmp_path / "run")
    train(small_recipe(tmp_path, constant), tmp_path / "run", resume=True)
    train(small_recipe(tmp_path, constant), tmp_path / "once")
    check_same(tmp_path / "run", tmp_path / "once")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lr=0.1", "optimizer.lr: 0.01 -> 0.1"),
        ("architecture.dim=32", "architecture.dim: 16 -> 32"),
        ("trainer.max_steps=19", "trainer.max_steps: 20 -> 19"),
        ("seed=4", "seed: 3 -> 4"),
        ("data.samples=40", "data.samples: 50 -> 40"),
    ],
)
def test_an_edited_recipe_is_refused_with_its_changes(
    tmp_path: Path, stopped: Path, override: str, message: str
) -> None:
    with pytest.raises(UserError, match="the run began with") as caught:
        train(small_recipe(tmp_path, DROPOUT, override), stopped, resume=True)
    assert message in str(caught.value)


def test_a_recipe_that_was_edited_in_the_run_folder_is_refused_with_its_lines(stopped: Path) -> None:
    recipe = stopped / "recipe.yaml"
    lines = recipe.read_text().splitlines()
    line = lines.index("  dim: 16") + 1
    recipe.write_text("\n".join([*lines[: line - 1], "  dim: 32", *lines[line:]]))
    with pytest.raises(UserError, match=r"the run began with: architecture.dim: 16 -> 32\n") as caught:
        train(load_recipe(stopped), stopped, resume=True)
    assert caught.value.where == f"{recipe}:{line} (architecture.dim)"
    assert caught.value.fix is not None and caught.value.fix.startswith("take the changes back, or start a new run")


def test_of_many_changes_the_first_are_named(tmp_path: Path, stopped: Path) -> None:
    knobs = ("lr=0.1", "weight_decay=0", "eps=1e-7", "betas=[0.8, 0.9]")
    changes = [DROPOUT, "seed=4", *(f"optimizer.{knob}" for knob in knobs)]
    with pytest.raises(UserError, match=r"; optimizer.betas.0: 0.9 -> 0.8; .*0.95 -> 0.9; and 1 more\n"):
        train(small_recipe(tmp_path, *changes), stopped, resume=True)


def test_the_edited_recipe_of_a_run_is_set_right_by_the_one_it_began_with(
    tmp_path: Path, stopped: Path, whole: Path
) -> None:
    (stopped / "recipe.yaml").write_text((whole / "recipe.yaml").read_text().replace("  dim: 16", "  dim: 32"))
    train(small_recipe(tmp_path, DROPOUT), stopped, resume=True)
    check_same(stopped, whole)
    assert load_recipe(stopped).tree == load_recipe(whole).tree


def test_a_second_run_in_the_same_folder_is_refused_and_changes_nothing(tmp_path: Path, whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    with pytest.raises(UserError, match="isn't empty") as caught:
        train(small_recipe(tmp_path, DROPOUT), whole)
    assert "--resume" in str(caught.value)
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_a_loss_that_is_not_finite_stops_the_run_before_the_weights_change(tmp_path: Path) -> None:
    run = tmp_path / "run"
    overrides = ("optimizer.lr=1e30", "training.clip_norm=null", "schedule=constant", "training.save_every=1")
    with pytest.raises(Diverged, match=r"diverged at step \d+: (loss|gradient norm) is (nan|inf)") as caught:
        train(small_recipe(tmp_path, *overrides), run)
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["steps"]) == ("diverged", caught.value.step - 1)
    assert load_run(run).step == caught.value.step - 1
    assert all(torch.isfinite(value).all() for value in weights(run).values())


def test_a_full_disk_ends_the_run_with_one_message_and_loses_no_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(small_recipe(tmp_path, "schedule=constant", "trainer.max_steps=8"), run)
    kept = {path.name: path.read_bytes() for path in (run / "checkpoints").iterdir()}
    size = (run / "checkpoints" / "step-8.ckpt").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, limits[1]))
    try:
        with pytest.raises(RunFailed, match=r"can't write .*step-12.ckpt"):
            train(small_recipe(tmp_path, "schedule=constant"), run, resume=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in (run / "checkpoints").iterdir()} == kept
    assert json.loads((run / "result.json").read_text())["status"] == "failed"


def test_evaluation_repeats_the_last_validation_whatever_the_batch_size(tmp_path: Path, whole: Path) -> None:
    expected = json.loads((whole / "result.json").read_text())["metrics"]
    for override in ("data.batch_size=8", "data.batch_size=5", "training.micro_batch_size=1"):
        found = evaluate(whole, [override])
        assert (found["split"], found["steps"], found["status"]) == ("validation", 20, "completed")
        assert found["metrics"] == pytest.approx({k: v for k, v in expected.items() if k.startswith("val_")}, rel=1e-6)
    assert set(evaluate(whole, split="test")["metrics"]) == {"test_loss", "test_perplexity", "test_accuracy"}


def test_checkpoints_hold_plain_values_and_the_newest_few_stay(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(small_recipe(tmp_path, "training.keep=2"), run)
    names = {path.name for path in (run / "checkpoints").iterdir()}
    assert names - {"best.ckpt"} == {"step-16.ckpt", "step-20.ckpt"}
    saved = torch.load(run / "checkpoints" / "step-20.ckpt", weights_only=True)
    assert saved["zoo"]["step"] == 20
    assert saved["zoo"]["recipe"] == (run / "recipe.yaml").read_text()
    assert write_recipe(tmp_path).exists()
