"""An attention by somebody who has read the docs and nothing else: examined, trained, measured and generated with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PLUGIN = Path(__file__).parent / "stranger" / "differential.py"
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


def test_one_file_from_outside_is_checked_trained_measured_and_generated_with(tmp_path: Path) -> None:
    plugin = os.path.relpath(PLUGIN, tmp_path)
    listed = zoo(tmp_path, "list", "attention", "--plugin", plugin)
    mine = [record for record in listed if record["name"] == "differential"]
    assert [(record["provider"], record["status"]) for record in mine] == [("differential.py", "ok")]

    report = zoo(tmp_path, "check", plugin)
    assert report["failed"] == 0
    assert report["passed"] >= 40

    attention = "architecture.attention={name: differential, kv_heads: 2}"
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
