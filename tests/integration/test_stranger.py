"""An attention by somebody who has read the docs and nothing else: examined, trained, measured and generated with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PLUGIN = Path(__file__).parent / "stranger" / "contrasting.py"
SMALL = [
    "data.source=python-docs",
    "data.tokenizer=byte",
    "data.length=32",
    "architecture.layers=2",
    "architecture.dim=32",
    "schedule.warmup_steps=0",
    "training.validate_batches=1",
    "trainer.max_steps=4",
    "trainer.precision=32-true",
]

pytestmark = pytest.mark.slow


def zoo(folder: Path, *arguments: str) -> Any:
    """The one JSON document that a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "zoo", *arguments, "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(folder: Path, *arguments: str) -> str:
    """What a command says that ends with exit code 2."""
    done = subprocess.run(
        [sys.executable, "-m", "zoo", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_one_file_from_outside_is_checked_trained_measured_and_generated_with(tmp_path: Path) -> None:
    plugin = os.path.relpath(PLUGIN, tmp_path)
    listed = zoo(tmp_path, "list", "attention", "--plugin", plugin)
    mine = [record for record in listed if record["name"] == "contrasting"]
    assert [(record["provider"], record["status"]) for record in mine] == [("contrasting.py", "ok")]

    report = zoo(tmp_path, "check", plugin)
    assert report["failed"] == 0
    assert report["passed"] >= 40

    attention = "architecture.attention={name: contrasting, kv_heads: 2}"
    run = zoo(tmp_path, "train", "gpt2_text", "--plugin", plugin, attention, *SMALL, "--run", "run")
    assert (run["status"], run["steps"]) == ("completed", 4)
    assert 0 < run["metrics"]["val_loss"] < 7

    measured = zoo(tmp_path, "eval", "run", "training.validate_batches=1")
    assert measured["metrics"]["val_loss"] == pytest.approx(run["metrics"]["val_loss"], abs=1e-6)

    cached, whole = (
        zoo(tmp_path, "generate", "run", "--prompt", "The ", "--max-new-tokens", "9", "--temperature", "0", *more)
        for more in ([], ["--no-cache"])
    )
    assert cached == whole
    assert len(cached[0]["tokens"]) == 9

    counted = zoo(tmp_path, "info", "run")
    assert counted["parameters"]["total"] == run["parameters"]
    assert counted["macs_per_token"] > 0


def test_a_plugin_that_has_changed_since_the_run_is_noticed(tmp_path: Path) -> None:
    plugin = tmp_path / "contrasting.py"
    shutil.copy(PLUGIN, plugin)
    zoo(tmp_path, "train", "gpt2_text", "--plugin", "contrasting.py", "architecture.attention=contrasting", *SMALL)
    plugin.write_text(plugin.read_text().replace("0.8 - 0.6", "0.8 - 0.5"))
    run = "runs/gpt2_text-1"
    done = subprocess.run(
        [sys.executable, "-m", "zoo", "generate", run, "--prompt", "a", "--max-new-tokens", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "attention/contrasting isn't what the run was trained with: its source has changed" in done.stderr
    message = refused(tmp_path, "train", run, "--resume", "trainer.max_steps=8")
    assert "the source of attention/contrasting has changed since the run began" in message
