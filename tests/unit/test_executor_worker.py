"""Cells in processes of their own: how they end, what they can't change, and what the worker makes of it."""

from __future__ import annotations

import faulthandler
import functools
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from zoo.comparison.folder import CompareFolder
from zoo.comparison.plans import Job, Plan, Shared
from zoo.comparison.process import Ended, judged, outcome_of, run_command, run_copy
from zoo.comparison.worker import Worker, main, visible_devices
from zoo.errors import Diverged, Interrupted, RunFailed, UserError
from zoo.training.files import write_json

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every cell is a command")


def copy(work: Any, tmp_path: Path, stopping: Any = lambda: False) -> Ended:
    return run_copy(work, tmp_path / "said.txt", stopping)


# A copy of the process


def state() -> list[Any]:
    """What a cell could leave behind."""
    numbers = [torch.initial_seed(), torch.get_num_threads(), *np.random.get_state()[1]]
    return [*numbers, torch.get_default_dtype(), Path.cwd(), dict(os.environ)]


def test_a_copy_says_how_it_ended_and_changes_nothing_here(tmp_path: Path) -> None:
    before = state()

    def work() -> Ended:
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        torch.set_num_threads(3)
        torch.manual_seed(5)
        np.random.rand(3)
        os.chdir("/")
        os.environ["ZOO_ODD"] = "1"
        sys.modules["zoo_odd"] = sys
        print("to nobody")
        print("to the file", file=sys.stderr)
        return Ended("diverged", "it did")

    assert copy(work, tmp_path) == Ended("diverged", "it did")
    assert (tmp_path / "said.txt").read_text() == "to the file\n"
    assert state() == before and not torch.are_deterministic_algorithms_enabled()
    assert "zoo_odd" not in sys.modules


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_copy_that_is_killed_has_failed(tmp_path: Path, number: int) -> None:
    def work() -> Any:
        faulthandler.disable()  # pytest's own, which would tell of it at length
        os.kill(os.getpid(), number)

    ended = copy(work, tmp_path)
    assert ended == Ended("failed", f"killed by signal {number}, as a machine that is out of memory does")


def test_a_copy_that_ends_by_itself_without_a_word_has_failed(tmp_path: Path) -> None:
    assert copy(lambda: os._exit(7), tmp_path).status == "failed"


def test_an_exception_in_a_copy_gets_no_further_than_its_file(tmp_path: Path) -> None:
    def work() -> Ended:
        raise ValueError("odd")

    assert copy(work, tmp_path).status == "failed"
    assert "ValueError: odd" in (tmp_path / "said.txt").read_text()


def test_a_copy_is_told_to_stop_once(tmp_path: Path) -> None:
    def work() -> Ended:
        told: list[int] = []
        signal.signal(signal.SIGTERM, lambda *_: told.append(1))
        (tmp_path / "ready").touch()
        while not told:
            time.sleep(0.01)
        time.sleep(0.5)
        return Ended("interrupted", f"told {len(told)} times")

    assert copy(work, tmp_path, (tmp_path / "ready").exists) == Ended("interrupted", "told 1 times")


def test_a_copy_that_is_told_to_stop_before_it_can_save_is_interrupted(tmp_path: Path) -> None:
    assert copy(lambda: time.sleep(60), tmp_path, lambda: True).status == "interrupted"


def test_a_copy_ends_with_the_process_that_made_it(tmp_path: Path) -> None:
    """However that ends: here it is killed."""

    def inner() -> Ended:
        (tmp_path / "pid").write_text(str(os.getpid()))
        time.sleep(60)
        return Ended("completed")

    def outer() -> Ended:
        return run_copy(inner, tmp_path / "inner.txt", lambda: (tmp_path / "pid").exists() and _kill_me())

    assert copy(outer, tmp_path).status == "failed"
    pid = int((tmp_path / "pid").read_text())
    for _ in range(500):
        if not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            return
        time.sleep(0.01)
    pytest.fail("the copy outlived the process that made it")


def _kill_me() -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return True


# Statuses


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UserError("no such file"), "invalid"),
        (Diverged(3, "loss is nan"), "diverged"),
        (Interrupted(15, 4), "interrupted"),
        (KeyboardInterrupt(), "interrupted"),
        (RunFailed("the disk is full"), "failed"),
    ],
)
def test_what_training_raises_is_a_status_and_a_reason(
    error: BaseException, status: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        raise error

    assert judged(work, []) == (status, str(error))
    assert capsys.readouterr().err == f"error: {error}\n"


def test_a_bug_is_told_with_its_traceback_and_the_plugin_s_line(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        raise RuntimeError("boom")

    ended = judged(work, [Path(__file__)])
    assert ended.status == "failed" and ended.reason.startswith("RuntimeError: boom\nthis is a bug of the plugin ")
    assert __file__ in ended.reason
    said = capsys.readouterr().err
    assert "Traceback" in said and "error: this is a bug of the plugin" in said
    assert "of the zoo or of a plugin" in judged(work, []).reason


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
    assert outcome_of(code, "why", is_signalled=is_signalled).status == status


def test_a_command_is_one_of_the_zoo_and_its_errors_go_to_the_file(tmp_path: Path) -> None:
    code, is_told = run_command(["show", "nothing"], tmp_path / "said.txt", lambda: False, environment={})
    assert (code, is_told) == (2, False)
    assert "error: " in (tmp_path / "said.txt").read_text()


def test_devices_are_counted_without_waking_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, count in (("", 0), ("0", 1), ("0,1,GPU-5", 3)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
        assert visible_devices() == count
    assert not torch.cuda.is_initialized()


# The worker


class Scripted(Worker):
    """A worker whose runs are made up: some results, written in a copy."""

    script: dict[str, Any]

    def _run(self, job: Job, claim: int) -> Ended:
        del claim
        self.folder.output(job.address).parent.mkdir(parents=True, exist_ok=True)
        return run_copy(functools.partial(self._serve, job), self.folder.output(job.address), self.stopping)

    def _serve(self, job: Job) -> Ended:
        with (self.folder.path / "asked.txt").open("a") as file:
            file.write(f"{job.address}\n")
        if act := self.script.get(job.address):
            act()
        run = self.folder.run(job.address)
        run.path.mkdir(parents=True)
        write_json(run.result, {"status": "completed", "metrics": {}, "steps": 1})
        return Ended("completed")


SHARED = Shared(text="seed: 1\n", plugins={}, sources={}, steps=1, devices=1)


def plan(*addresses: str) -> Plan:
    return Plan([SHARED], [Job(address, address, "a", "t", 1, 0, 1, False) for address in addresses])


@pytest.fixture
def handlers() -> Any:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def served(folder: CompareFolder, *addresses: str, script: dict[str, Any] | None = None, **options: Any) -> list[str]:
    """Addresses that a worker has run."""
    todo = plan(*addresses)
    worker = Scripted(folder, todo, todo.jobs, **options)
    worker.script = script or {}
    worker.work()
    file = folder.path / "asked.txt"
    asked = file.read_text().split() if file.exists() else []
    file.unlink(missing_ok=True)
    return asked


def statuses(folder: CompareFolder) -> dict[str, str]:
    return {address: entry.status for address, entry in folder.read_index().entries.items()}


def test_a_worker_serves_what_is_free_and_notes_how_it_ended(tmp_path: Path, handlers: Any) -> None:
    folder = CompareFolder(tmp_path)
    claim = folder.claims.take("b")
    assert claim is not None
    assert served(folder, "a", "b", "c") == ["a", "c"]
    assert statuses(folder) == {"a": "completed", "c": "completed"} and folder.claims.names() == ["b"]
    claim.free()
    assert served(folder, "a", "b", "c") == ["b"]
    assert served(folder, "a", "b", "c") == []


def test_a_cell_that_kills_itself_keeps_no_other_from_running(tmp_path: Path, handlers: Any) -> None:
    folder = CompareFolder(tmp_path)
    script = {"a": lambda: os.kill(os.getpid(), signal.SIGKILL)}
    assert served(folder, "a", "b", script=script) == ["a", "b"]
    assert statuses(folder) == {"a": "failed", "b": "completed"}
    assert served(folder, "a", "b", since=0) == []  # it failed since then
    assert served(folder, "a", "b") == ["a"] and statuses(folder)["a"] == "completed"


def test_a_run_that_is_complete_though_the_index_lacks_it_is_only_noted(tmp_path: Path, handlers: Any) -> None:
    folder = CompareFolder(tmp_path)
    folder.index.append(folder.record("z", "failed"))
    for address, status in (("a", "completed"), ("b", "diverged"), ("c", "interrupted")):
        folder.run(address).path.mkdir(parents=True)
        write_json(folder.run(address).result, {"status": status, "metrics": {}, "steps": 1})
    write_json(folder.costs_file("a"), {})
    folder.output("b").write_text("error: diverged at step 1: loss is nan\n")
    worker = Scripted(folder, plan("a", "b", "c"), plan("a", "b").jobs)
    assert worker.work()
    assert not (tmp_path / "asked.txt").exists()
    entries = folder.read_index().entries
    assert (entries["a"].status, entries["b"].status) == ("completed", "diverged")
    assert entries["b"].record.reason == "diverged at step 1: loss is nan"


@pytest.mark.parametrize("how", ["file", "signal", "orphan"])
def test_a_worker_stops_between_cells(tmp_path: Path, handlers: Any, how: str) -> None:
    folder, stop, parent = CompareFolder(tmp_path), tmp_path / "stop", os.getpid()
    acts = {
        "file": stop.touch,
        "signal": lambda: os.kill(parent, signal.SIGTERM),
        "orphan": lambda: None,
    }
    asked = served(folder, "a", "b", script={"a": acts[how]}, stop=stop, parent=1 if how == "orphan" else None)
    assert asked == ([] if how == "orphan" else ["a"])


def test_a_worker_that_begins_when_all_is_done_ends_at_once(tmp_path: Path) -> None:
    assert main([str(tmp_path), "plan.json", "--todo", str(tmp_path / "gone")]) == 0
