"""A small comparison for real: processes that train, one that is interrupted and goes on, some that end badly."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from small_runs import HERE, RECIPE
from zoo.cli import main
from zoo.training.run import load_run

pytestmark = pytest.mark.slow

BOTH = """
base: small.yaml
compare:
  variants:
    plain: {}
    blind: {architecture.position: none}
  seeds: [7, 8]
training: {validate_every: 200, save_every: 200, log_every: 5}
trainer: {max_steps: 300}
"""
BAD = f"""
base: small.yaml
plugins: [{HERE / "patchy.py"}, {HERE / "boom.py"}]
compare:
  variants:
    plain: {{}}
    raises: {{architecture.attention: boom}}
    killed: {{architecture.attention: {{name: boom, way: kill}}}}
    nan: {{architecture.attention: {{name: boom, way: nan}}}}
  seeds: [7]
trainer: {{max_steps: 4}}
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with two comparisons."""
    folder = tmp_path_factory.mktemp("compare")
    for name, text in (("small", RECIPE), ("both", BOTH), ("bad", BAD)):
        (folder / f"{name}.yaml").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def whole(here: Path) -> dict[str, Any]:
    """What a comparison that nobody disturbed found."""
    assert main(["compare", "both.yaml", "--run", "whole"]) == 0
    return json.loads((here / "whole" / "results.json").read_text())


def times(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in (folder / "cells").rglob("*")}


def test_cells_are_ordinary_runs_whose_differences_are_paired(whole: dict[str, Any]) -> None:
    losses = {}
    for cell in whole["cells"]:
        assert (cell["status"], cell["costs"]["steps"]) == ("completed", 300)
        loaded = load_run(cell["run"])
        assert (loaded.recipe.seed, loaded.step) == (cell["seed"], 300)
        assert (
            loaded.recipe.component("architecture.position").name
            == {"plain": "learned", "blind": "none"}[cell["variant"]]
        )
        losses[cell["variant"], cell["seed"]] = cell["metrics"]["val_loss"]
    (verdict,) = whole["verdicts"]
    differences = [losses["blind", seed] - losses["plain", seed] for seed in (7, 8)]
    assert verdict["difference"] == pytest.approx(statistics.fmean(differences))
    half = 12.7062047 * statistics.stdev(differences) / 2**0.5  # t(0.975, 1)
    assert verdict["high"] - verdict["low"] == pytest.approx(2 * half)
    assert verdict["seeds"] == 2 and 0 < verdict["p"] < 1


def test_what_is_finished_is_not_touched_again(here: Path, whole: dict[str, Any]) -> None:
    before = times(here / "whole")
    assert main(["compare", "both.yaml", "--run", "whole"]) == 0
    assert times(here / "whole") == before


def test_an_interrupted_comparison_goes_on_and_ends_the_same(here: Path, whole: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "zoo", "compare", "both.yaml", "--run", "cut"]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not any(len(file.read_text().splitlines()) > 2 for file in here.glob("cut/cells/*/metrics.csv")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 130, error
    assert "to go on, give the same command and --run cut" in error
    rows = (here / "cut" / "results.csv").read_text().splitlines()[1:]
    assert len(rows) == 4 and any(row.split(",")[3] == "planned" for row in rows)
    assert main(["compare", "both.yaml", "--run", "cut"]) == 0
    assert (here / "cut" / "results.csv").read_bytes() == (here / "whole" / "results.csv").read_bytes()


def test_whatever_becomes_of_a_cell_the_comparison_goes_on(here: Path) -> None:
    assert main(["compare", "bad.yaml", "--run", "bad"]) == 1
    cells = {cell["variant"]: cell for cell in json.loads((here / "bad" / "results.json").read_text())["cells"]}
    statuses = {variant: cell["status"] for variant, cell in cells.items()}
    assert statuses == {"plain": "completed", "raises": "failed", "killed": "failed", "nan": "diverged"}
    assert cells["raises"]["reason"].startswith("RuntimeError: boom\nthis is a bug of the plugin")
    assert cells["killed"]["reason"].startswith("killed by signal 9")
    assert cells["nan"]["reason"] == "diverged at step 1: loss is nan"
