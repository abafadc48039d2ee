"""The index of a comparison, its claims, its plans and its board: what many processes write and read at once."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.comparison.board import Board, newest_row
from zoo.comparison.cells import Cell
from zoo.comparison.claims import Claims
from zoo.comparison.folder import CompareFolder, last_error
from zoo.comparison.index import Index, Record
from zoo.comparison.live import summary
from zoo.comparison.plans import Job, Plan, Shared, devices, settled
from zoo.recipe import Recipe
from zoo.training.files import write_json

FORK = multiprocessing.get_context("fork")
SHARED = Shared(text="seed: 1\n", plugins={}, sources={}, steps=100, devices=1)


def record(address: str, loss: float = 1.0, status: Any = "completed", seconds: float = 0.0) -> Record:
    result = {"status": status, "metrics": {"val_loss": loss}, "steps": 4}
    return Record(address=address, status=status, reason="", seconds=seconds, result=result, costs={"macs": None})


# index.jsonl


def test_what_is_appended_is_read_by_another_and_the_last_line_counts(tmp_path: Path) -> None:
    index, other = Index(tmp_path / "index.jsonl"), Index(tmp_path / "index.jsonl")
    assert other.read() == []
    index.append(record("a", 1.0))
    index.append(record("b", 2.0, "failed"))
    assert other.read() == ["a", "b"] and other.read() == []
    index.append(record("a", 0.1 + 0.2))
    assert other.read() == ["a"]
    assert other.entries["a"].record == record("a", 0.1 + 0.2)
    assert [found.status for found in other.records(["b", "a"])] == ["failed", "completed"]
    for line in (tmp_path / "index.jsonl").read_text().splitlines():
        assert len(json.loads(line)["check"]) == 8  # each line is JSON for whoever reads it without us


@given(text=st.text(), loss=st.floats(allow_nan=False), cut=st.integers(min_value=1, max_value=400))
def test_a_line_that_was_cut_off_is_waited_for_and_then_taken_away(
    text: str, loss: float, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("index") / "index.jsonl"
    whole = Record(address="b", status="failed", reason=text, result={"metrics": {"val_loss": loss}})
    first, torn = record("a").line(), whole.line()
    path.write_bytes(first + torn[: min(cut, len(torn) - 1)])
    index = Index(path)
    assert index.read() == ["a"] and index.damaged == 0
    index.append(whole)
    assert index.read() == ["b"] and index.entries["b"].record == whole
    assert path.read_bytes() == first + torn


def test_a_damaged_line_is_noticed_whatever_byte_it_is(tmp_path: Path) -> None:
    line = record("a").line()
    for place in range(len(line) - 1):
        path = tmp_path / f"{place}.jsonl"
        changed = bytes([line[place] ^ 1])
        path.write_bytes(line[:place] + changed + line[place + 1 :] + record("b").line())
        index = Index(path)
        index.read()
        assert index.damaged >= 1 and index.entries.keys() == {"b"}


def _append_many(path: Path, name: str) -> None:
    index = Index(path)
    for number in range(50):
        index.append(record(f"{name}{number}"))


def test_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "index.jsonl"
    processes = [FORK.Process(target=_append_many, args=(path, name)) for name in "abcd"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    index = Index(path)
    index.read()
    assert (len(index.entries), index.damaged) == (200, 0)


def test_an_index_that_is_made_again_is_read_from_its_beginning(tmp_path: Path) -> None:
    index, reader = Index(tmp_path / "index.jsonl"), Index(tmp_path / "index.jsonl")
    index.append(record("a"))
    reader.read()
    index.rebuild([record("b"), record("c")])
    assert reader.read() == ["b", "c"] and reader.entries.keys() == {"b", "c"}


def folder_with(path: Path, *results: tuple[str, str]) -> CompareFolder:
    folder = CompareFolder(path)
    for address, status in results:
        folder.run(address).path.mkdir(parents=True)
        write_json(folder.run(address).result, {"status": status, "metrics": {"val_loss": 1.5}, "steps": 7})
    return folder


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_the_index_is_made_from_the_run_folders_again(tmp_path: Path, damage: str) -> None:
    folder = folder_with(tmp_path, ("aa01", "completed"), ("ab02", "diverged"), ("aa03", "failed"))
    folder.output("ab02").write_text("step 4\nerror: diverged at step 5: loss is nan\n")
    write_json(folder.costs_file("aa01"), {"macs": 12})
    (folder.cells / "ab04.yaml").touch()
    if damage == "changed":
        folder.index.append(record("aa01", 2.0))
        text = folder.index.path.read_bytes()
        folder.index.path.write_bytes(text.replace(b"2.0", b"3.0"))
    index = folder.read_index()
    assert {address: entry.status for address, entry in index.entries.items()} == {
        "aa01": "completed", "ab02": "diverged", "aa03": "failed",
    }  # fmt: skip
    assert index.entries["aa01"].record.costs == {"macs": 12}
    assert index.entries["aa01"].record.result["metrics"] == {"val_loss": 1.5}
    assert index.entries["ab02"].record.reason == "diverged at step 5: loss is nan"
    assert index.damaged == 0 and index.path.is_file()


def test_a_new_folder_gets_no_index_before_something_has_ended(tmp_path: Path) -> None:
    assert CompareFolder(tmp_path).read_index().entries == {} and not [*tmp_path.iterdir()]


def test_the_reason_is_the_last_message_and_the_exception_of_a_bug() -> None:
    assert last_error("") == ""
    assert last_error("error: the only one\n  at: here\n") == "the only one\n  at: here"
    assert last_error("step 4/8\nerror: early\nnote\nerror: late\n") == "late"
    trace = 'Traceback (most recent call last):\n  File "a.py", line 3\nRuntimeError: boom\nerror: this is a bug\n'
    assert last_error(trace) == "RuntimeError: boom\nthis is a bug"


# Claims


def test_a_claim_is_one_process_s_until_it_is_freed(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "claims")
    claim = claims.take("a", title="plain / text")
    assert claim is not None and claims.take("a") is None and claims.take("b") is not None
    ((name, facts), *_) = claims.held()
    assert (name, facts["title"], facts["pid"]) == ("a", "plain / text", os.getpid())
    claim.free()
    assert not claims.is_held("a") and claims.names() == ["b"]
    assert claims.take("a") is not None


def _hold(folder: Path, told: Any) -> None:
    claim = Claims(folder).take("a")
    told.send(claim is not None)
    time.sleep(60)


def test_a_claim_of_a_process_that_was_killed_is_free_at_once(tmp_path: Path) -> None:
    reader, writer = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_hold, args=(tmp_path, writer))
    process.start()
    assert reader.recv() is True
    claims = Claims(tmp_path)
    assert claims.take("a") is None and claims.is_held("a")
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert [*claims.held()] == [] and claims.names() == ["a"]  # a leftover, which counts for nothing
    assert claims.take("a") is not None


def _race(folder: Path, counts: Path) -> None:
    claims = Claims(folder)
    for number in range(100):
        if claim := claims.take(f"{number % 5}"):
            mark = counts / f"{number % 5}"
            mark.mkdir()  # fails if anybody else is here
            mark.rmdir()
            claim.free()


def test_never_two_have_a_claim_however_often_it_changes_hands(tmp_path: Path) -> None:
    processes = [FORK.Process(target=_race, args=(tmp_path / "claims", tmp_path)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]


# Plans


def recipe(**trainer: Any) -> Recipe:
    values = {"task": "causal_lm", "architecture": {"name": "gpt2", "layers": 1, "dim": 16, "heads": 2}}
    return Recipe.from_dict({**values, "trainer": {"max_steps": 4, **trainer}}, fragment=True)


def test_cells_that_share_a_recipe_have_their_own_as_if_it_were_written_whole(tmp_path: Path) -> None:
    base, other = recipe(), recipe(max_steps=5)
    cells = [Cell("a", "t", seed, base, f"a{seed}") for seed in (1337, 5, 7)]
    cells += [Cell("b", "t", 5, other, "b5"), Cell("c", "t", 5, other, "b5"), Cell("d", "t", 5, status="invalid")]
    path = Plan.of(cells, is_tuned=False).write(tmp_path)
    plan = Plan.read(path)
    assert [job.address for job in plan.jobs] == ["a1337", "a5", "a7", "b5"]
    assert [shared.steps for shared in plan.recipes] == [4, 5]
    for job, cell in zip(plan.jobs, cells, strict=False):
        assert cell.recipe is not None
        assert plan.recipes[job.recipe].with_seed(job.seed) == cell.recipe.to_yaml()
    assert Plan.of(cells, is_tuned=False).write(tmp_path) == path and len([*tmp_path.iterdir()]) == 1


def test_the_test_part_is_measured_of_what_is_reported_after_tuning() -> None:
    base = recipe()
    cells = [Cell("a", "t", 1, base, "x", phase="tune"), Cell("a", "t", 2, base, "y", phase="report")]
    assert [job.test for job in Plan.of(cells, is_tuned=True).jobs] == [False, True]
    assert [job.test for job in Plan.of(cells, is_tuned=False).jobs] == [False, False]


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        ({"devices": 1}, 1),
        ({"devices": 2}, 2),
        ({"devices": [0, 3, 4]}, 3),
        ({"devices": "0,1"}, 2),
        ({"devices": 2, "num_nodes": 3}, 6),
        ({"devices": "auto", "accelerator": "gpu"}, 0),
        ({"devices": -1, "accelerator": "gpu"}, 0),
        ({"devices": "auto", "accelerator": "cpu"}, 1),
    ],
)
def test_the_devices_of_a_cell(trainer: dict[str, Any], expected: int) -> None:
    assert devices(recipe(**trainer)) == expected


def job(address: str, *, test: bool = False, variant: str = "a", task: str = "t") -> Job:
    return Job(address, f"{variant} / {task} / {address}", variant, task, 1, 0, 1, test)


def test_what_needs_no_further_start(tmp_path: Path) -> None:
    index = Index(tmp_path / "index.jsonl")
    for address, status in (("done", "completed"), ("bad", "failed"), ("nan", "diverged"), ("cut", "interrupted")):
        index.append(record(address, status=status))
    index.read()
    entries, end = index.entries, index.place
    assert settled(job("done"), entries["done"], end) and settled(job("nan"), entries["nan"], end)
    assert not settled(job("done", test=True), entries["done"], end)  # the test part is to be measured yet
    assert not settled(job("bad"), entries["bad"], end) and settled(job("bad"), entries["bad"], 0)
    assert not settled(job("cut"), entries["cut"], 0) and not settled(job("new"), None, 0)


# The board


def test_the_board_counts_and_estimates_by_cells_of_the_same_kind(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, ("f1", "completed"), ("s1", "completed"))
    folder.index.append(record("f1", seconds=10.0))
    folder.index.append(record("s1", seconds=100.0))
    jobs = [job(f"f{n}", variant="fast") for n in (1, 2, 3)] + [job(f"s{n}", variant="slow") for n in (1, 2)]
    jobs.append(job("o1", variant="other"))
    board = Board(folder, Plan([SHARED], jobs))
    assert [*board.waiting] == ["f2", "f3", "s2", "o1"] and len(board.known) == 2
    assert board.seconds_left([]) == pytest.approx(10 + 10 + 100 + 55)  # the other one: the mean of both
    folder.index.append(record("f2", seconds=20.0))
    folder.index.append(record("s2", status="failed"))
    assert [found.address for found in board.look()] == ["f2", "s2"]
    assert board.counts == {"completed": 3, "failed": 1} and [*board.failures] == ["s2"]
    assert board.seconds_left([]) == pytest.approx(15 + (15 + 100) / 2)
    claim = folder.claims.take("f3")
    assert claim is not None
    metrics = folder.run("f3").metrics
    metrics.parent.mkdir(parents=True)
    metrics.write_text("step,train_loss\n20,3.5\n40,2.5\n50,2")  # the last row is being written
    (running,) = board.running()
    assert (running.job.address, running.step, running.steps, running.loss) == ("f3", 40, 100, 2.5)
    assert board.seconds_left([running]) == pytest.approx(15 * 0.6 + (15 + 100) / 2)
    assert summary(board, [running]) == "4 of 6 done, 1 running, 1 failed, about 1:06 left"


def test_a_long_metrics_file_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    assert newest_row(path) == {}
    path.write_text("step,train_loss,val_loss\n")
    assert newest_row(path) == {}
    path.write_text("step,train_loss,val_loss\n" + "".join(f"{n},{n / 2},\n" for n in range(1, 5000)))
    assert newest_row(path) == {"step": 4999.0, "train_loss": 2499.5}
