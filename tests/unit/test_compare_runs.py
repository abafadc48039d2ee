"""A comparison from folder to folder: what is run, taken over and written. The runs themselves are made up."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import zoo
from zoo.cli import main
from zoo.comparison import compare
from zoo.comparison.cells import Cell
from zoo.comparison.compare import compare_variants
from zoo.comparison.folder import CompareFolder
from zoo.comparison.process import _outcome, last_error
from zoo.errors import Interrupted, UserError
from zoo.recipe import load_comparison
from zoo.training.files import write_json
from zoo.training.run import RunFolder
from zoo.training.signals import Signals

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
HEADER = "variant,task,seed,status,parameters,steps,val_loss,val_nats_per_byte,val_perplexity,val_accuracy\n"


class Runs:
    """Stands in for processes: the loss is 2 + seed / 10, for deep models less by 0.5 and a hundredth of the seed."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.ends: dict[tuple[str, int], str] = {}
        self.stop_at: tuple[str, int] | None = None

    def __call__(self, folder: CompareFolder, cell: Cell, signals: Signals, watcher: Any) -> None:
        del watcher
        key = (cell.variant, cell.seed)
        self.asked.append(key)
        cell.status = self.ends.get(key, "completed")  # type: ignore[assignment]
        if key == self.stop_at:
            cell.status = "interrupted"
            signals._received.add(signal.SIGINT)
        loss = 2 + cell.seed / 10 - (0.5 + cell.seed / 100 if cell.variant == "deep" else 0)
        metrics = {"train_loss": 1.0, "val_loss": loss, "val_accuracy": 0.5} if cell.status == "completed" else {}
        cell.result = {
            "status": cell.status,
            "metrics": metrics,
            "parameters": 10,
            "steps": 4,
            "tokens": 8,
            "wall_s": 1.5,
        }
        run = folder.run(cell.address)
        run.path.mkdir(parents=True, exist_ok=True)
        write_json(run.result, cell.result)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """A working directory with a comparison, and what its runs come to."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "both.yaml").write_text(BOTH)
    (tmp_path / "text.txt").write_text("\n\n".join(f"Sentence {n} of a text that is long enough." for n in range(99)))
    made = Runs()
    monkeypatch.setattr(compare, "run_cell", made)
    return made


def compared(*overrides: str, run: str | None = "out") -> dict[str, Any]:
    return compare_variants(load_comparison("both.yaml", overrides), run and Path(run))  # type: ignore[arg-type]


def table(folder: str = "out") -> str:
    return (Path(folder) / "results.csv").read_text()


# What is run


def test_seeds_come_first_so_that_pairs_are_early_complete(runs: Runs) -> None:
    compared()
    assert runs.asked == [(variant, seed) for seed in (1, 2, 3) for variant in ("plain", "deep")]


def test_a_second_call_redoes_nothing_and_adds_what_is_new(runs: Runs) -> None:
    first = compared()
    runs.asked.clear()
    assert compared() == first and runs.asked == []
    compared("compare.seeds=[1,4]", "compare.variants.flat={architecture.position: none}")
    assert runs.asked == [("flat", 1), ("plain", 4), ("deep", 4), ("flat", 4)]
    assert len(list(Path("out/cells").iterdir())) == 10


def test_failed_and_interrupted_cells_are_started_again_and_diverged_ones_are_not(runs: Runs) -> None:
    runs.ends = {("plain", 1): "failed", ("deep", 1): "interrupted", ("deep", 2): "diverged"}
    statuses = [cell["status"] for cell in compared()["cells"]]
    assert statuses == ["failed", "completed", "completed", "interrupted", "diverged", "completed"]
    runs.asked.clear()
    runs.ends = {}
    statuses = [cell["status"] for cell in compared()["cells"]]
    assert statuses == ["completed"] * 4 + ["diverged", "completed"]
    assert runs.asked == [("plain", 1), ("deep", 1)]


def test_a_signal_ends_the_comparison_after_its_results_are_written(runs: Runs) -> None:
    runs.stop_at = ("plain", 2)
    with pytest.raises(Interrupted) as error:
        compared()
    assert (error.value.signal_number, error.value.step) == (signal.SIGINT, 4)
    assert [line.split(",")[3] for line in table().splitlines()[1:]] == [
        "completed", "interrupted", "planned", "completed", "planned", "planned",
    ]  # fmt: skip
    runs.stop_at = None
    runs.asked.clear()
    compared()
    assert runs.asked == [("plain", 2), ("deep", 2), ("plain", 3), ("deep", 3)]


def test_variants_that_are_the_same_run_once(runs: Runs) -> None:
    (verdict,) = compared("compare.variants.deep={architecture.layers: 1}")["verdicts"]
    assert runs.asked == [("plain", 1), ("plain", 2), ("plain", 3)]
    assert (verdict["difference"], verdict["verdict"]) == (0.0, "undecided")
    assert "identical runs" in verdict["note"]


def test_an_invalid_cell_is_a_row_and_never_runs(runs: Runs) -> None:
    result = compared("compare.variants.odd={architecture.heads: 3}", "compare.seeds=1")
    assert runs.asked == [("plain", 1337), ("deep", 1337)]
    cell = result["cells"][-1]
    assert (cell["variant"], cell["status"], cell["run"]) == ("odd", "invalid", None)
    assert "3 heads" in cell["reason"]
    assert table().splitlines()[-1] == "odd,both,1337,invalid,,,,,,"


# The folder


def test_without_a_name_the_next_free_folder_is_taken(runs: Runs) -> None:
    assert [compared(run=None)["folder"] for _ in range(2)] == [str(Path(f"runs/both-{n}").absolute()) for n in (1, 2)]


def test_a_folder_with_something_else_in_it_is_refused(runs: Runs) -> None:
    Path("out").mkdir()
    Path("out/notes.txt").write_text("mine")
    with pytest.raises(UserError, match="out isn't empty"):
        compared()
    assert [file.name for file in Path("out").iterdir()] == ["notes.txt"] and runs.asked == []


def test_two_processes_do_not_compare_in_one_folder(runs: Runs) -> None:
    compared()
    other = RunFolder(Path("out"))
    other.hold()
    with pytest.raises(UserError, match="another process"):
        compared()
    other.release()
    compared()


def cell_of(folder: CompareFolder) -> Cell:
    recipe = load_comparison("both.yaml").recipe("plain", "both", 1)
    cell = Cell("plain", "both", 1, recipe, "abc")
    folder.cells.mkdir(parents=True)
    return cell


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], "begin"),
        (["recipe.yaml"], "begin"),  # killed before the folder was whole
        (["recipe.yaml", "recipe.lock.yaml"], "resume"),
        (["recipe.yaml", "recipe.lock.yaml", "checkpoints/step-2.ckpt"], "resume"),
        (["recipe.yaml", "recipe.lock.yaml", "checkpoints/step-4.ckpt"], "begin"),  # killed before its result
    ],
)
def test_a_run_goes_on_where_there_is_something_to_go_on_from(runs: Runs, files: list[str], expected: str) -> None:
    folder = CompareFolder(Path("out"))
    cell = cell_of(folder)
    run = folder.run("abc").path
    for name in files:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).touch()
    assert folder.prepare(cell) == expected
    assert run.exists() == (expected == "resume")
    assert folder.recipe("abc").is_file() == (expected == "begin")


# Results


def test_results_are_the_same_bytes_each_time(runs: Runs) -> None:
    compared()
    compared(run="again")
    assert table() == table("again")
    assert table() == HEADER + (
        "plain,both,1,completed,10,4,2.1,,,0.5\n"
        "plain,both,2,completed,10,4,2.2,,,0.5\n"
        "plain,both,3,completed,10,4,2.3,,,0.5\n"
        "deep,both,1,completed,10,4,1.59,,,0.5\n"
        "deep,both,2,completed,10,4,1.6800000000000002,,,0.5\n"
        "deep,both,3,completed,10,4,1.7699999999999998,,,0.5\n"
    )
    assert json.loads(Path("out/results.json").read_text()) == {**compared(), "folder": str(Path("out").absolute())}


def test_a_verdict_has_every_field_that_scripts_rely_on(runs: Runs) -> None:
    result = compared()
    assert set(result) == {"folder", "cells", "verdicts"}
    assert set(result["cells"][0]) >= {"variant", "task", "seed", "status", "metrics", "costs", "run"}
    assert result["cells"][0]["costs"] == {"parameters": 10, "steps": 4, "tokens": 8, "wall_s": 1.5}
    (verdict,) = result["verdicts"]
    # differences -0.51, -0.52, -0.53: sd 0.01, half = 4.302653 * 0.01 / sqrt(3)
    assert verdict["difference"] == pytest.approx(-0.52)
    assert (verdict["low"], verdict["high"]) == pytest.approx((-0.5448414, -0.4951586), abs=1e-6)
    assert verdict["p"] == pytest.approx(0.000123, abs=1e-6)
    rest = {key: value for key, value in verdict.items() if key not in ("difference", "low", "high", "p")}
    assert rest == {
        "task": "both", "variant": "deep", "baseline": "plain", "metric": "val_loss", "p_adjusted": None,
        "confidence": 0.95, "margin": None, "seeds": 3, "seeds_needed": None, "minutes_needed": None,
        "verdict": "better", "note": "",
    }  # fmt: skip


def test_the_order_of_variants_changes_no_number(runs: Runs) -> None:
    (first,) = compared("compare.baseline=plain")["verdicts"]
    text = BOTH.replace("plain: {}, deep: {architecture.layers: 2}", "deep: {architecture.layers: 2}, plain: {}")
    Path("both.yaml").write_text(text)
    (second,) = compared("compare.baseline=plain", run="other")["verdicts"]
    assert first == second
    rows = [sorted(table(folder).splitlines()) for folder in ("out", "other")]
    assert rows[0] == rows[1]


def test_the_other_baseline_gives_the_opposite_verdict(runs: Runs) -> None:
    (verdict,) = compared("compare.baseline=deep")["verdicts"]
    assert (verdict["variant"], verdict["verdict"]) == ("plain", "worse")
    assert verdict["difference"] == pytest.approx(0.52)


@pytest.mark.parametrize(("lost", "expected"), [(("deep", 3), "undecided"), (("plain", 3), "better")])
def test_survivors_are_no_proof(runs: Runs, lost: tuple[str, int], expected: str) -> None:
    """A variant that diverges where the baseline doesn't is not better by the seeds that are left."""
    runs.ends = {lost: "diverged"}
    (verdict,) = compared("compare.seeds=[1,2,3,4]")["verdicts"]
    assert (verdict["seeds"], verdict["verdict"]) == (3, expected)
    assert verdict["high"] < 0 and "1 diverged" in verdict["note"]


# The command


def test_the_command_prints_a_table_that_fits_80_columns(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    name = "compare.variants.grouped_query+sliding_window+learned={architecture.position: none}"
    assert main(["compare", "both.yaml", name, "--run", "out"]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert next(line.split() for line in lines if line.startswith("plain")) == ["plain", "2.200", "baseline"]
    assert next(line.split() for line in lines if line.startswith("deep")) == [
        "deep", "1.680", "-0.5200", "-0.5448", "-0.4952", "0.00012", "better",
    ]  # fmt: skip
    assert lines[-1] == "results: out/results.csv"
    assert "1/9 plain / both / seed 1: completed" in printed.err


def test_the_command_as_json_is_what_the_function_returns(runs: Runs, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "both.yaml", "--run", "out", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document == zoo.compare("both.yaml", run="out")
    assert zoo.compare("both.yaml", run="out", dry_run=True) == document  # the function, after its rooms are imported


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
def test_exit_codes(runs: Runs, ends: dict[tuple[str, int], str], code: int) -> None:
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


# How a process ended


@pytest.mark.parametrize(
    ("code", "is_signalled", "status"),
    [
        (0, False, "completed"),
        (0, True, "completed"),
        (1, False, "failed"),
        (1, True, "failed"),
        (2, False, "invalid"),
        (3, False, "diverged"),
        (130, True, "interrupted"),
        (143, False, "interrupted"),
        (-signal.SIGTERM, True, "interrupted"),
        (-signal.SIGTERM, False, "failed"),
        (-signal.SIGKILL, True, "failed"),
    ],
)
def test_the_status_follows_the_exit_code(code: int, is_signalled: bool, status: str) -> None:
    assert _outcome(code, "why", is_signalled=is_signalled)[0] == status


def test_the_reason_is_the_last_message_and_the_exception_of_a_bug() -> None:
    assert last_error("") == ""
    assert last_error("error: the only one\n  at: here\n") == "the only one\n  at: here"
    assert last_error("step 4/8\nerror: early\nnote\nerror: late\n") == "late"
    trace = 'Traceback (most recent call last):\n  File "a.py", line 3\nRuntimeError: boom\nerror: this is a bug\n'
    assert last_error(trace) == "RuntimeError: boom\nthis is a bug"
