"""A small comparison for real: workers that train, some interrupted or killed, some cells that end badly."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from small_runs import HERE, RECIPE
from zoo.cli import main
from zoo.training.evaluate import evaluate
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
  verdicts: false
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


def begun(folder: Path, rows: int = 2) -> bool:
    """Whether some run has logged a few steps."""
    return any(len(file.read_text().splitlines()) > rows for file in folder.glob("cells/*/metrics.csv"))


def start(*arguments: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "zoo", "compare", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """Processes that a process has started, and those that they have."""
    found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*found, *(below for child in found for below in children(child))]


def sorted_rows(folder: Path) -> list[str]:
    return sorted((folder / "results.csv").read_text().splitlines())


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_comparison_goes_on_and_ends_the_same(here: Path, whole: dict[str, Any], number: int) -> None:
    folder = here / f"cut-{number}"
    process = start("both.yaml", "--run", folder.name)
    wait_until(lambda: begun(folder), process)
    process.send_signal(number)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 128 + number, error
    assert f"to go on, give the same command and --run {folder.name}" in error
    rows = (folder / "results.csv").read_text()
    assert len(rows.splitlines()) == 5 and "interrupted" in rows and "planned" in rows
    assert not [*folder.glob("claims/*")]
    assert main(["compare", "both.yaml", "--run", folder.name]) == 0
    assert (folder / "results.csv").read_bytes() == (here / "whole" / "results.csv").read_bytes()


@pytest.mark.parametrize("whom", ["compare", "worker", "cell", "all"])
def test_whoever_is_killed_the_results_are_the_same(here: Path, whole: dict[str, Any], whom: str) -> None:
    """``kill -9`` of the command leaves no worker behind; that of a worker, nothing to do for anybody."""
    folder = here / f"killed-{whom}"
    process = start("both.yaml", "--run", folder.name)
    wait_until(lambda: begun(folder), process)
    worker, *cells = children(process.pid)
    victims = {"compare": [process.pid], "worker": [worker], "cell": cells, "all": [process.pid, worker, *cells]}
    for victim in victims[whom]:
        os.kill(victim, signal.SIGKILL)
    if whom in ("compare", "all"):
        process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL
    else:
        _, error = process.communicate(timeout=300)
        assert process.returncode == (0 if whom == "worker" else 1), error
        assert ("killed by signal 9" in error) == (whom == "cell")
    assert main(["compare", "both.yaml", "--run", folder.name]) == 0
    assert (folder / "results.csv").read_bytes() == (here / "whole" / "results.csv").read_bytes()
    assert not [pid for pid in (worker, *cells) if Path(f"/proc/{pid}").exists() and state(pid) != "Z"]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_neither_order_nor_company_nor_the_number_of_workers_changes_a_digit(here: Path, whole: dict[str, Any]) -> None:
    """[A, B] = [B, A] = A alone with somebody else; 1 worker = 2 workers."""
    swapped = BOTH.replace("    plain: {}\n", "").replace("  seeds", "    plain: {}\n  seeds")
    other = BOTH.replace("blind: {architecture.position: none}", "deep: {architecture.layers: 3}")
    for name, text in (("swapped", swapped), ("other", other)):
        (here / f"{name}.yaml").write_text(text.replace("  seeds", "  baseline: plain\n  seeds"))
    assert main(["compare", "swapped.yaml", "--run", "swapped", "--workers", "2"]) == 0
    assert [row.replace(",swapped,", ",both,") for row in sorted_rows(here / "swapped")] == sorted_rows(here / "whole")
    assert main(["compare", "other.yaml", "--run", "other"]) == 0
    plain = [row for row in sorted_rows(here / "whole") if row.startswith("plain,")]
    company = [row.replace(",other,", ",both,") for row in sorted_rows(here / "other")]
    assert len(plain) == 2 and plain == [row for row in company if row.startswith("plain,")]


def test_two_commands_in_one_folder_share_the_work(here: Path, whole: dict[str, Any]) -> None:
    processes = [start("both.yaml", "--run", "shared"), start("both.yaml", "--run", "shared")]
    for process in processes:
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
    assert (here / "shared" / "results.csv").read_bytes() == (here / "whole" / "results.csv").read_bytes()
    lines = (here / "shared" / "index.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["address"] for line in lines) == sorted(
        Path(cell["run"]).name for cell in whole["cells"]
    )


def test_a_watcher_sees_what_another_process_runs(here: Path, whole: dict[str, Any]) -> None:
    process = start("both.yaml", "--run", "watched")
    wait_until(lambda: begun(here / "watched"), process)
    watcher = start("--watch", "watched")
    _, error = watcher.communicate(timeout=300)
    assert watcher.returncode == 0 and re.search(r"[0-3] of 4 done, 1 running", error), error
    assert "4 of 4 done, 0 running" in error, error
    _, own = process.communicate(timeout=300)
    assert process.returncode == 0, own
    assert "4/4 blind / both / seed 8: completed: val_loss" in own


def test_after_tuning_the_test_part_is_measured_as_zoo_eval_does(here: Path) -> None:
    command = ["both.yaml", "trainer.max_steps=8", "compare.tune={optimizer.lr: [0.01, 0.001]}", "compare.seeds=[7]"]
    assert main(["compare", *command, "compare.verdicts=false", "--run", "tuned"]) == 0
    cells = json.loads((here / "tuned" / "results.json").read_text())["cells"]
    reported = [cell for cell in cells if cell["phase"] == "report"]
    assert len(cells) == 6 and len(reported) == 2
    for cell in reported:
        measured = {name: value for name, value in cell["metrics"].items() if name.startswith("test_")}
        assert measured and measured == evaluate(cell["run"], split="test")["metrics"]
    assert not any(name.startswith("test_") for cell in cells if cell["phase"] == "tune" for name in cell["metrics"])


def test_a_cell_for_two_devices_is_a_command_of_its_own(here: Path) -> None:
    command = ["both.yaml", "trainer.max_steps=8", "trainer.devices=2", "trainer.strategy=ddp", "compare.seeds=[7]"]
    assert main(["compare", *command, "compare.verdicts=false", "--run", "ranks"]) == 0
    single = [*command[:2], "compare.seeds=[7]", "compare.verdicts=false"]
    assert main(["compare", *single, "--run", "one"]) == 0
    losses = [
        [cell["metrics"]["val_loss"] for cell in json.loads((here / name / "results.json").read_text())["cells"]]
        for name in ("ranks", "one")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_whatever_becomes_of_a_cell_the_comparison_goes_on(here: Path) -> None:
    assert main(["compare", "bad.yaml", "--run", "bad"]) == 1
    cells = {cell["variant"]: cell for cell in json.loads((here / "bad" / "results.json").read_text())["cells"]}
    statuses = {variant: cell["status"] for variant, cell in cells.items()}
    assert statuses == {"plain": "completed", "raises": "failed", "killed": "failed", "nan": "diverged"}
    assert cells["raises"]["reason"].startswith("RuntimeError: boom\nthis is a bug of the plugin")
    assert cells["killed"]["reason"].startswith("killed by signal 9")
    assert cells["nan"]["reason"] == "diverged at step 1: loss is nan"
