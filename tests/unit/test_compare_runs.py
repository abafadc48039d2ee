"""A comparison from folder to folder: what is run, taken over and written. The runs themselves are made up."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import zoo
from made_up_runs import Runs
from zoo.cli import main
from zoo.comparison import compare
from zoo.comparison.cells import Status
from zoo.comparison.compare import compare_variants
from zoo.comparison.folder import CompareFolder
from zoo.errors import Interrupted, RunFailed, UserError
from zoo.recipe import load_comparison

SMALL = """
data: {name: text, source: files, files: [text.txt], tokenizer: byte, length: 16, batch_size: 4, validation: 0.2}
architecture: {name: gpt2, layers: 1, dim: 16, heads: 2}
task: causal_lm
trainer: {max_steps: 4, accelerator: cpu, devices: 1}
"""
BOTH = """
base: small.yaml
compare:
  variants: {plain: {}, deep: {architecture.layers: 2}}
  seeds: [1, 2, 3]
"""


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """A working directory with a comparison, and what its runs come to."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "both.yaml").write_text(BOTH)
    (tmp_path / "text.txt").write_text("\n\n".join(f"Sentence {n} of a text that is long enough." for n in range(99)))
    made = Runs()
    monkeypatch.setattr(compare, "build_executor", lambda settings, registry: made)
    monkeypatch.setattr(compare, "POLL", 0.001)
    return made


def compared(*overrides: str, run: str | None = "out") -> dict[str, Any]:
    return compare_variants(load_comparison("both.yaml", overrides), None if run is None else Path(run))


def table(folder: str = "out") -> list[dict[str, str]]:
    with (Path(folder) / "results.csv").open(newline="") as file:
        return [*csv.DictReader(file)]


def statuses(result: dict[str, Any]) -> dict[tuple[str, int], str]:
    return {(cell["variant"], cell["seed"]): cell["status"] for cell in result["cells"]}


# What is run


def test_seeds_come_first_so_that_pairs_are_early_complete(runs: Runs) -> None:
    compared()
    assert runs.asked == [(variant, seed) for seed in (1, 2, 3) for variant in ("plain", "deep")]


def test_a_second_call_redoes_nothing_and_adds_what_is_new(runs: Runs) -> None:
    first = compared()
    runs.asked.clear()
    assert compared() == first and runs.asked == [] and len(runs.crews) == 1
    compared("compare.seeds=[1,4]", "compare.variants.flat={architecture.position: none}")
    assert runs.asked == [("flat", 1), ("plain", 4), ("deep", 4), ("flat", 4)]
    assert len(CompareFolder(Path("out")).runs()) == 10


def test_failed_and_interrupted_cells_are_started_again_and_diverged_ones_are_not(runs: Runs) -> None:
    runs.ends = {("plain", 1): "failed", ("deep", 2): "diverged"}
    first = statuses(compared())
    assert (first["plain", 1], first["deep", 2], first["deep", 1]) == ("failed", "diverged", "completed")
    assert runs.asked.count(("plain", 1)) == 1  # not again and again within one call
    runs.asked.clear()
    runs.ends = {}
    second = statuses(compared())
    assert (second["plain", 1], second["deep", 2]) == ("completed", "diverged")
    assert runs.asked == [("plain", 1)]


def test_a_cell_that_somebody_interrupts_goes_on_in_the_next_crew_as_long_as_it_gets_further(runs: Runs) -> None:
    runs.ends = {("deep", 1): "interrupted"}
    with pytest.raises(RunFailed, match="of which 1 are left"):
        compared()
    assert len(runs.crews) == compare.RETRIES + 2  # the first one took it to step 4, and then it never got further
    assert [row["status"] for row in table()].count("interrupted") == 1


def test_workers_that_run_nothing_are_an_error_with_what_they_said(runs: Runs) -> None:
    runs.lazy = True
    (Path("out") / "workers").mkdir(parents=True)
    compare.CompareFolder(Path("out")).comparison.write_text("")
    (Path("out") / "workers" / "local-0.txt").write_text("Traceback\nModuleNotFoundError: no torch\n")
    with pytest.raises(RunFailed, match="ModuleNotFoundError: no torch"):
        compared()
    assert len(runs.crews) == 1


def test_a_signal_ends_the_comparison_after_its_results_are_written(runs: Runs) -> None:
    runs.stop_at = ("plain", 2)
    with pytest.raises(Interrupted) as error:
        compared()
    assert (error.value.signal_number, error.value.step) == (signal.SIGINT, 4)
    found = {(row["variant"], int(row["seed"])): row["status"] for row in table()}
    assert found == {
        ("plain", 1): "completed", ("plain", 2): "interrupted", ("plain", 3): "planned",
        ("deep", 1): "completed", ("deep", 2): "planned", ("deep", 3): "planned",
    }  # fmt: skip
    assert [*Path("out/workers").iterdir()] == []  # neither the list of what was to do nor the word to stop
    runs.stop_at = None
    runs.asked.clear()
    compared()
    assert runs.asked == [("plain", 2), ("deep", 2), ("plain", 3), ("deep", 3)]


def test_variants_that_are_the_same_run_once(runs: Runs) -> None:
    (verdict,) = compared("compare.variants.deep={architecture.layers: 1}")["verdicts"]
    assert runs.asked == [("plain", 1), ("plain", 2), ("plain", 3)]
    assert (verdict["difference"], verdict["verdict"]) == (0.0, "undecided")
    assert "identical" in verdict["note"]


def test_an_invalid_cell_is_a_row_and_never_runs(runs: Runs) -> None:
    result = compared("compare.variants.odd={architecture.heads: 3}", "compare.seeds=1", "compare.verdicts=false")
    assert runs.asked == [("plain", 1337), ("deep", 1337)]
    cell = result["cells"][-1]
    assert (cell["variant"], cell["status"], cell["run"]) == ("odd", "invalid", None)
    assert "3 heads" in cell["reason"]
    assert {row["status"] for row in table() if row["variant"] == "odd"} == {"invalid"}


def test_a_run_folder_that_was_taken_away_is_made_again(runs: Runs) -> None:
    result = compared()
    shutil.rmtree(result["cells"][0]["run"])
    runs.asked.clear()
    assert compared() == result
    assert runs.asked == [("plain", 1)]


def test_what_another_process_runs_is_waited_for_and_taken_over(runs: Runs) -> None:
    """Two calls in one folder share the work: no cell is run twice, and both know all results at the end."""
    first = compared("compare.seeds=[1]", "compare.verdicts=false")
    address = Path(first["cells"][0]["run"]).name
    folder = CompareFolder(Path("out"))
    entry = folder.read_index().entries[address].record
    shutil.rmtree(first["cells"][0]["run"])
    claim = folder.claims.take(address)
    assert claim is not None

    def other() -> None:
        time.sleep(0.3)
        folder.run(address).path.mkdir()
        folder.index.append(entry)
        claim.free()

    thread = threading.Thread(target=other)
    thread.start()
    runs.asked.clear()
    result = compared("compare.seeds=[1]", "compare.verdicts=false")
    thread.join()
    assert runs.asked == [] and set(statuses(result).values()) == {"completed"}


def test_a_cell_that_another_process_gives_up_is_run(runs: Runs) -> None:
    address = Path(compared("compare.seeds=[1]", "compare.verdicts=false")["cells"][0]["run"]).name
    folder = CompareFolder(Path("out"))
    shutil.rmtree(folder.run(address).path)
    claim = folder.claims.take(address)
    assert claim is not None
    timer = threading.Timer(0.3, claim.free)
    timer.start()
    runs.asked.clear()
    compared("compare.seeds=[1]", "compare.verdicts=false")
    timer.join()
    assert runs.asked == [("plain", 1)]


# The folder


def test_without_a_name_the_next_free_folder_is_taken(runs: Runs) -> None:
    assert [compared(run=None)["folder"] for _ in range(2)] == [str(Path(f"runs/both-{n}").absolute()) for n in (1, 2)]


def test_a_folder_with_something_else_in_it_is_refused(runs: Runs) -> None:
    Path("out").mkdir()
    Path("out/notes.txt").write_text("mine")
    with pytest.raises(UserError, match="out isn't empty"):
        compared()
    assert [file.name for file in Path("out").iterdir()] == ["notes.txt"] and runs.asked == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], "begin"),
        (["recipe.yaml"], "begin"),  # killed before the folder was whole
        (["recipe.yaml", "recipe.lock.yaml"], "resume"),
        (["recipe.yaml", "recipe.lock.yaml", "checkpoints/step-2.ckpt"], "resume"),
        (["recipe.yaml", "recipe.lock.yaml", "checkpoints/step-4.ckpt"], "begin"),  # killed before its result
        (["recipe.yaml", "recipe.lock.yaml", "checkpoints/step-2.ckpt", "checkpoints/step-4.ckpt"], "resume"),
    ],
)
def test_a_run_goes_on_where_there_is_something_to_go_on_from(tmp_path: Path, files: list[str], expected: str) -> None:
    folder = CompareFolder(tmp_path)
    run = folder.run("abc").path
    for name in files:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).touch()
    assert folder.prepare("abc", 4) == expected
    assert run.exists() == (expected == "resume")
    assert not (run / "checkpoints/step-4.ckpt").exists()


# Results


def test_results_are_the_same_bytes_each_time(runs: Runs) -> None:
    compared()
    compared(run="again")
    assert Path("out/results.csv").read_bytes() == Path("again/results.csv").read_bytes()
    rows = table()
    assert {(row["variant"], row["val_loss"]) for row in rows if row["seed"] == "2"} == {
        ("plain", "2.2"),
        ("deep", "1.6800000000000002"),
    }
    assert json.loads(Path("out/results.json").read_text()) == {**compared(), "folder": str(Path("out").absolute())}


def test_the_order_of_variants_changes_no_number(runs: Runs) -> None:
    (first,) = compared("compare.baseline=plain")["verdicts"]
    text = BOTH.replace("plain: {}, deep: {architecture.layers: 2}", "deep: {architecture.layers: 2}, plain: {}")
    Path("both.yaml").write_text(text)
    (second,) = compared("compare.baseline=plain", run="other")["verdicts"]
    assert first == second
    assert Path("out/results.csv").read_bytes() == Path("other/results.csv").read_bytes()


def test_results_are_written_seldom_while_cells_are_run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    real = compare.write_results
    monkeypatch.setattr(compare, "write_results", lambda *given: written.append(1) or real(*given))
    compared("compare.seeds=12")
    assert len(runs.asked) == 24 and len(written) == 1
    monkeypatch.setattr(compare, "WRITE_EVERY", 0.0)
    monkeypatch.setattr(compare, "WRITE_SHARE", 0)
    compared("compare.seeds=24")
    assert len(runs.asked) == 48 and len(written) > 10


# Tuning


def test_every_variant_is_tuned_and_reported_at_its_own_best_point_with_the_test_part(runs: Runs) -> None:
    result = compared("compare.tune={optimizer.lr: [0.001, 0.01]}")
    tuned = [cell for cell in result["cells"] if cell["phase"] == "tune"]
    reported = [cell for cell in result["cells"] if cell["phase"] == "report"]
    assert len(tuned) == 4 and len(reported) == 6
    assert {cell["seed"] for cell in tuned} & {cell["seed"] for cell in reported} == set()
    assert not any("test_loss" in cell["metrics"] for cell in tuned)
    assert all("test_loss" in cell["metrics"] for cell in reported)
    assert {cell["point"]["optimizer.lr"] for cell in reported} == {0.001}  # the first of equal ones
    assert len(runs.crews) == 2  # one for each phase


# The command


def test_the_command_says_how_each_run_ended(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    runs.ends = {("deep", 2): "failed"}
    assert main(["compare", "both.yaml", "--run", "out"]) == 1
    printed = capsys.readouterr()
    assert "out: 6 to run" in printed.err
    assert "1/6 plain / both / seed 1: completed: val_loss 2.1000" in printed.err
    assert "4/6 deep / both / seed 2: failed: why" in printed.err
    assert printed.out.splitlines()[-1] == "results: out/report.html, results.csv, costs.csv"


def test_the_command_as_json_is_what_the_function_returns(runs: Runs, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "both.yaml", "--run", "out", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document == zoo.compare("both.yaml", run="out")
    planned = zoo.compare("both.yaml", run="out", dry_run=True)  # the function, after its rooms are imported
    assert planned.pop("remarks")[0].startswith("3 seeds, 1 verdict") and planned == document


def test_a_dry_run_lists_the_grid_and_writes_nothing(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path().rglob("*"))
    assert main(["compare", "both.yaml", "compare.variants.odd={architecture.heads: 3}", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "9 cells: 6 planned, 3 invalid" in printed and "odd on both (3)" in printed
    assert sorted(Path().rglob("*")) == before and runs.asked == []


@pytest.mark.parametrize(
    ("ends", "code"),
    [({}, 0), ({("deep", 2): "diverged"}, 0), ({("deep", 2): "failed"}, 1), ({("deep", 2): "interrupted"}, 1)],
)
def test_exit_codes(runs: Runs, ends: dict[tuple[str, int], Status], code: int) -> None:
    runs.ends = ends
    assert main(["compare", "both.yaml", "--run", "out"]) == code


def test_a_comparison_that_is_interrupted_says_how_it_goes_on(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    runs.stop_at = ("deep", 1)
    assert main(["compare", "both.yaml"]) == 130
    error = capsys.readouterr().err
    assert "--run runs/both-1" in error and error.endswith("error: interrupted after step 4; state saved\n")


def test_a_recipe_without_a_block_exits_2(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "small.yaml"]) == 2
    assert "has no `compare` block" in capsys.readouterr().err
    assert main(["train", "both.yaml"]) == 2
    assert "zoo compare both.yaml" in capsys.readouterr().err


def test_watching_reads_files_alone(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    runs.ends = {("deep", 2): "failed"}
    compared()
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*")}
    assert main(["compare", "--watch", "out"]) == 0
    assert main(["compare", "both.yaml", "--watch", "--run", "out"]) == 0
    said = capsys.readouterr().err
    assert said.count("6 of 6 done, 0 running, 1 failed") == 2
    assert {path: path.stat().st_mtime_ns for path in Path("out").rglob("*")} == before


def test_there_must_be_something_to_watch(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--watch", "both.yaml"]) == 2
    assert "holds no comparison" in capsys.readouterr().err
