"""Real cells, workers that are killed or stopped in the middle, and results that are the same to the last digit.

Commands and workers are forks of this process, so that none of them has to import anything; that is all that differs
from ``zoo compare``, which tests/integration/test_compare.py starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zoo.comparison import compare, worker
from zoo.comparison.compare import compare_variants
from zoo.contracts.executor import Crew, Executor, Work
from zoo.errors import Interrupted
from zoo.recipe import load_comparison

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every cell is a command"),
]

SMALL = """
data: {name: text, source: files, files: [text.txt], tokenizer: byte, length: 16, batch_size: 4, validation: 0.2}
architecture: {name: gpt2, layers: 1, dim: 16, heads: 2, dropout: 0.1}
task: causal_lm
optimizer: {name: adamw, lr: 1e-2}
schedule: {warmup_steps: 4}
training: {validate_every: 25, save_every: 10, log_every: 5, validate_batches: 4}
trainer: {max_steps: 60, accelerator: cpu, devices: 1}
"""
VARIANTS = {"plain": "{}", "blind": "{architecture.position: none}"}


class Forked(Executor):
    """Workers that are forks of this process."""

    def start(self, work: Work) -> Crew:
        return ForkedCrew(work, self.config.workers or 1)


class ForkedCrew(Crew):
    def __init__(self, work: Work, count: int) -> None:
        super().__init__(work)
        parent = os.getpid()
        self.pids = [fork(lambda: worker.main([*work.worker()[4:], "--parent", str(parent)])) for _ in range(count)]

    def running(self) -> int:
        self.pids = [pid for pid in self.pids if os.waitpid(pid, os.WNOHANG)[0] == 0]
        return len(self.pids)

    def stop(self) -> None:
        super().stop()
        for pid in self.pids:
            os.kill(pid, signal.SIGTERM)


def fork(work: Callable[[], int]) -> int:
    """Do something in a copy of this process, which ends with the code that it gives."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def compared(name: str, folder: str, workers: int) -> int:
    """``zoo compare``; its exit code."""
    try:
        compare_variants(load_comparison(f"{name}.yaml"), Path(folder), workers=workers)
    except Interrupted as error:
        return 128 + error.signal_number
    return 0


def begin(name: str, folder: str, *, workers: int = 1) -> int:
    return fork(lambda: compared(name, folder, workers))


def code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(name: str, folder: str, *, workers: int = 1) -> Path:
    """Compare until the end; the folder."""
    assert code_of(begin(name, folder, workers=workers)) == 0
    return Path(folder)


def write(name: str, variants: list[str]) -> None:
    block = ", ".join(f"{variant}: {VARIANTS[variant]}" for variant in variants)
    text = (
        f"base: small.yaml\ncompare: {{variants: {{{block}}}, tasks: [small.yaml], seeds: [7, 8], baseline: plain}}\n"
    )
    Path(f"{name}.yaml").write_text(text)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with a comparison that nobody disturbed."""
    folder = tmp_path_factory.mktemp("kills")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(compare, "build_executor", lambda said, _: Forked(Forked.Config(workers=said.get("workers"))))
        text = "\n\n".join(f"Sentence {n} of a text that is long enough." for n in range(99))
        Path("text.txt").write_text(text)
        Path("small.yaml").write_text(SMALL)
        write("both", ["plain", "blind"])
        yield run("both", "whole")


def results(folder: Path) -> bytes:
    return (folder / "results.csv").read_bytes()


def children(pid: int) -> list[int]:
    """Processes that a process has started and that are alive."""
    with contextlib.suppress(FileNotFoundError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def family(pid: int) -> tuple[list[int], list[int]]:
    """Workers of a command, and the processes of their cells."""
    workers = children(pid)
    return workers, [cell for one in workers for cell in children(one)]


def in_the_middle(folder: Path, pid: int) -> bool:
    """Whether some cell has logged a step, and is being run."""
    logged = any(len(file.read_text().splitlines()) > 1 for file in folder.glob("cells/*/metrics.csv"))
    return logged and bool(family(pid)[1])


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except FileNotFoundError:
        return True


def kill(pid: int, whom: str, draw: random.Random) -> None:
    workers, cells = family(pid)
    victims = {
        "command": [pid],
        "worker": [draw.choice(workers or [pid])],
        "cell": [draw.choice(cells or [pid])],
        "all": [pid, *workers, *cells],
    }
    for victim in victims[whom]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_reaches_all_workers_and_each_saves(whole: Path, number: int, workers: int) -> None:
    folder = Path(f"cut-{number}-{workers}")
    pid = begin("both", str(folder), workers=workers)
    wait_for(lambda: in_the_middle(folder, pid))
    processes = [one for group in family(pid) for one in group]
    os.kill(pid, number)
    assert code_of(pid) == 128 + number
    assert all(map(is_gone, processes)) and not [*folder.glob("claims/*")] and not [*folder.glob("workers/*.stop")]
    statuses = [json.loads(line)["status"] for line in (folder / "index.jsonl").read_text().splitlines()]
    assert "interrupted" in statuses
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("cells/*/model.safetensors")}
    assert results(run("both", str(folder))) == results(whole)
    assert before.items() <= {p.name: p.stat().st_mtime_ns for p in folder.glob("cells/*/model.safetensors")}.items()


@pytest.mark.parametrize("whom", ["command", "worker", "cell", "all"])
def test_whoever_is_killed_the_results_are_the_same(whole: Path, whom: str) -> None:
    """The workers of a command that is killed end by themselves; what a killed worker leaves is taken up by others."""
    folder = Path(f"killed-{whom}")
    pid = begin("both", str(folder))
    wait_for(lambda: in_the_middle(folder, pid))
    processes = [one for group in family(pid) for one in group]
    kill(pid, whom, random.Random(0))
    assert code_of(pid) == (-signal.SIGKILL if whom in ("command", "all") else 0)
    assert results(run("both", str(folder))) == results(whole)
    statuses = [json.loads(line)["status"] for line in (folder / "index.jsonl").read_text().splitlines()]
    assert ("failed" in statuses) == (whom == "cell")
    assert all(map(is_gone, processes))


def test_twenty_kills_leave_the_same_results(whole: Path) -> None:
    draw, folder = random.Random(1), Path("twenty")
    kills: list[str] = []
    while len(kills) < 20:
        pid = begin("both", str(folder), workers=2)
        deadline = time.monotonic() + draw.uniform(0.05, 3.0)
        while time.monotonic() < deadline and not is_gone(pid):
            time.sleep(0.005)
        kills.append(draw.choice(["command", "worker", "cell", "all", "all"]))
        kill(pid, kills[-1], draw)
        if kills[-1] in ("worker", "cell"):
            os.kill(pid, signal.SIGTERM)
        code_of(pid)
    assert len(set(kills)) == 4
    run("both", str(folder))
    assert results(folder) == results(whole)


def test_neither_order_nor_company_nor_the_number_of_workers_changes_a_digit(whole: Path) -> None:
    """[A, B] = [B, A] = A alone with another; 1 worker = 2 workers."""
    write("swapped", ["blind", "plain"])
    assert results(run("swapped", "swapped", workers=2)) == results(whole)
    VARIANTS["deep"] = "{architecture.layers: 2}"
    write("other", ["deep", "plain"])
    rows = [sorted(results(folder).splitlines()) for folder in (whole, run("other", "other", workers=3))]
    plain = [[row for row in found if row.startswith(b"plain,")] for found in rows]
    assert len(plain[0]) == 2 and plain[0] == plain[1]


def test_two_commands_in_one_folder_share_the_work(whole: Path) -> None:
    pids = [begin("both", "shared"), begin("both", "shared", workers=2)]
    assert [code_of(pid) for pid in pids] == [0, 0]
    assert results(Path("shared")) == results(whole)
    lines = [json.loads(line)["address"] for line in Path("shared/index.jsonl").read_text().splitlines()]
    assert len(lines) == len(set(lines)) == 4


def test_a_command_takes_up_what_the_workers_of_a_killed_one_are_still_saving(whole: Path) -> None:
    folder = Path("taken-up")
    first = begin("both", str(folder), workers=2)
    wait_for(lambda: in_the_middle(folder, first))
    workers = [one for group in family(first) for one in group]
    os.kill(first, signal.SIGKILL)
    assert results(run("both", str(folder))) == results(whole)
    code_of(first)
    wait_for(lambda: all(map(is_gone, workers)))
    run("both", str(folder))  # sweeps what the killed command has left: forks of it had kept its own claim till now
    assert not [*folder.glob("claims/*")]
