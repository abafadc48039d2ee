"""Runs trained again for real: bit-equal from their lock, or the step at which somebody's hand shows."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from small_runs import HERE, finish, rows, small_recipe, start, write_recipe
from zoo.cli import main
from zoo.errors import Diverged
from zoo.registry import Registry
from zoo.training.run import load_run
from zoo.training.train import train
from zoo.training.weights import read_weights, save_weights
from zoo.verification.difference import diff
from zoo.verification.entries import Check, Entry
from zoo.verification.replay import replay
from zoo.verification.subjects import find_subject
from zoo.verification.verify import verify

pytestmark = pytest.mark.slow

DROPOUT = "architecture.dropout=0.1"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 steps with dropout."""
    folder = tmp_path_factory.mktemp("whole")
    train(small_recipe(folder, DROPOUT), folder / "run")
    return folder / "run"


@pytest.fixture
def copy(tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, to be changed."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def edit_row(run: Path, step: int, column: str, value: str) -> None:
    """Put another value into metrics.csv."""
    header, *lines = (run / "metrics.csv").read_text().splitlines()
    place = header.split(",").index(column)
    for number, line in enumerate(lines):
        cells = line.split(",")
        if cells[0] == str(step):
            cells[place] = value
            lines[number] = ",".join(cells)
    (run / "metrics.csv").write_text("\n".join([header, *lines, ""]))


def test_a_run_is_bit_equal_to_its_replay_and_diff_agrees(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    count = len(load_run(copy).model.state_dict())
    assert lines == [f"bit-equal: 20 rows of metrics and {count} tensors of step 20", "replay: runs/run-replay"]
    found = diff(find_subject("run"), find_subject("runs/run-replay"))
    assert found["sentence"] == "same recipe, same code, same data: equal to the last bit"
    assert rows(copy) == rows(Path("runs/run-replay"))
    assert replay("run")["replay"].endswith("runs/run-replay-2")


def test_the_first_step_that_differs_is_named_with_both_values(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    true = next(row for row in rows(copy) if row["step"] == 7)["train_loss"]
    edit_row(copy, 7, "train_loss", repr(true * (1 + 2**-50)))
    assert main(["replay", "run", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["rows"]["equal_to"]) == ("differs", 6)
    first = found["rows"]["first_difference"]
    assert first["step"] == 7
    (column,) = first["columns"]
    assert (column["column"], column["second"]) == ("train_loss", true)
    assert column["relative"] == pytest.approx(2**-50, rel=0.2)
    assert found["sentence"].startswith("differs: differ from step 7 on, train_loss")
    assert len(rows(Path(found["replay"]))) == 20


def test_a_replay_may_end_at_the_first_difference(copy: Path) -> None:
    edit_row(copy, 7, "grad_norm", "0.5")
    found = replay("run", stop_at_first=True)
    assert found["rows"]["first_difference"]["step"] == 7
    assert rows(Path(found["replay"]))[-1]["step"] == 8  # the step that was under way
    assert load_run(found["replay"]).step == 8


def test_one_bit_of_one_weight_is_a_difference(copy: Path) -> None:
    tensors, facts = read_weights(copy / "model.safetensors")
    name = next(name for name, tensor in tensors.items() if tensor.ndim == 2)
    tensors[name].view(torch.int32)[0, 0] ^= 1
    save_weights(copy / "model.safetensors", tensors, facts)
    found = replay("run")
    assert (found["status"], found["weights"]["differing"]) == ("differs", [name])
    assert found["rows"]["first_difference"] is None
    assert found["sentence"].startswith("differs: equal metrics, and other weights (1 of ")


def test_a_run_that_was_stopped_and_resumed_is_replayed_whole(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    long = (DROPOUT, "trainer.max_steps=300", "schedule=constant")
    process = start(tmp_path, Path("run"), *long, start_new_session=True)
    stop(process, Path("run"))
    stopped = replay("run")
    step = int(rows(Path("run"))[-1]["step"])
    assert (stopped["status"], stopped["weights"]["steps"]) == ("bit-equal", [step, step])
    assert json.loads((Path(stopped["replay"]) / "result.json").read_text())["status"] == "interrupted"
    finish(start(tmp_path, Path("run"), *long, "--resume"))
    resumed = replay("run", "again")
    assert (resumed["status"], resumed["rows"]["shared"], resumed["notes"]) == ("bit-equal", 300, [])


def stop(process: subprocess.Popen[str], run: Path) -> None:
    """Ctrl-C when some steps are done."""
    deadline = time.monotonic() + 600
    while not (run / "metrics.csv").exists() or len(rows(run)) < 6:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130


def test_a_run_that_was_made_longer_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train(small_recipe(tmp_path, "trainer.max_steps=8"), tmp_path / "run")
    train(small_recipe(tmp_path), tmp_path / "run", resume=True)
    found = replay("run")
    assert found["status"] == "differs"  # the cosine was one of 8 steps first
    first = found["rows"]["first_difference"]
    assert first["columns"][0]["column"] == "lr"
    (note,) = found["notes"]
    assert note.startswith("the run was resumed with trainer.max_steps: 8 -> 20; the replay had the last values")


def test_a_run_that_diverged_diverges_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wild = ("optimizer.lr=1e30", "training.clip_norm=null", "schedule=constant", "training.save_every=1")
    with pytest.raises(Diverged):
        train(small_recipe(tmp_path, *wild), tmp_path / "run")
    assert replay("run")["status"] == "bit-equal"


def test_an_edited_plugin_and_an_edited_recipe_are_refused_unless_one_insists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plugin = shutil.copy(HERE / "patchy.py", tmp_path / "patchy.py")
    recipe = write_recipe(tmp_path)
    recipe.write_text(recipe.read_text().replace(str(HERE / "patchy.py"), str(plugin)))
    assert main(["train", "small.yaml", "--run", "run", "trainer.max_steps=4", "--json"]) == 0
    Path(plugin).write_text(Path(plugin).read_text().replace("13, ", "14, "))
    edited = Path("run/recipe.yaml").read_text().replace("lr: 0.01", "lr: 0.02")
    Path("run/recipe.yaml").write_text(edited)
    capsys.readouterr()
    assert main(["replay", "run"]) == 2
    error = capsys.readouterr().err
    assert "source of data/patchy: " in error and "recipe.yaml: " in error and "--anyway" in error
    assert not Path("runs").exists()
    assert main(["replay", "run", "--anyway", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["what"] for each in found["drift"]] == ["source of data/patchy", "recipe.yaml"]
    assert found["rows"]["first_difference"]["columns"][0]["column"] == "lr"
    assert [change["path"] for change in found["lock"]] == ["components.data/patchy.sha256"]


def test_an_entry_is_trained_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shared: dict[str, Any] = {"recipe": "small", "file": write_recipe(tmp_path), "why": "w", "seconds": 1}
    checks = {
        "learns": Check(**shared, metric="loss", at_most=2.5),
        "is no oracle": Check(**shared, metric="accuracy", split="validation", at_most=0.9),
        "diverges": Check(
            **shared, overrides={"optimizer.lr": 1e30, "training.clip_norm": None, "schedule": "constant"}, at_least=0
        ),
    }
    found = verify([Entry(name="e", claim="c", source="s", checks=checks)], Registry.discover())
    learns, oracle, diverges = found["entries"][0]["checks"]
    assert (found["passed"], found["failed"]) == (2, 1)
    assert learns["run"] == oracle["run"] and Path(learns["run"]).name == "verify-e-learns-1"
    assert 1 < learns["value"] < 2.5
    assert (diverges["status"], diverges["value"]) == ("fail", None)
    assert diverges["reason"].startswith("diverged at step ")


def test_the_command_runs_in_a_process_of_its_own(copy: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zoo", "replay", "run", "--run", "again", "--json"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["replay"] == str(copy.parent / "again")
