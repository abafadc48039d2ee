"""The SLURM executor against commands that stand in for SLURM's: what is asked for, and that it runs."""

from __future__ import annotations

import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from zoo.contracts.executor import Work
from zoo.errors import UserError
from zoo_builtin.executor.slurm import Slurm, ranges

pytest.importorskip("submitit")

SBATCH = r"""
import os, pathlib, re, subprocess, sys
folder = pathlib.Path(os.environ["STAND_IN"])
text = pathlib.Path(sys.argv[-1]).read_text()
(folder / "asked.sh").write_text(text)
array = re.search(r"--array=0-(\d+)", text)
for number in range(int(array[1]) + 1 if array else 1):
    own = {"SLURM_JOB_ID": f"{7 + number}", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0", "SLURM_PROCID": "0"}
    own |= {"SLURM_NODEID": "0", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "here", "SLURMD_NODENAME": "here"}
    own |= {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(number)} if array else {"SLURM_JOB_ID": "7"}
    said = open(folder / f"job-{number}.txt", "wb")
    process = subprocess.Popen(["bash", sys.argv[-1]], env={**os.environ, **own}, stdout=said, stderr=said)
    (folder / f"pid-{number}").write_text(str(process.pid))
print("Submitted batch job 7")
"""
SRUN = r"""
import os, sys
arguments = sys.argv[1:]
while arguments[0].startswith("-"):
    flag = arguments.pop(0)
    if flag in ("--output", "--error"):
        arguments.pop(0)
os.execvp(arguments[0], arguments)
"""
SACCT = r"""
import os, pathlib
print("JobID|State|NodeList")
for path in pathlib.Path(os.environ["STAND_IN"]).glob("pid-*"):
    stat = pathlib.Path(f"/proc/{path.read_text()}/stat")
    is_over = not stat.exists() or stat.read_text().split()[2] == "Z"
    name = path.name.removeprefix("pid-")
    print(f"7_{name}|{'COMPLETED' if is_over else 'RUNNING'}|here")
    print(f"7|{'COMPLETED' if is_over else 'RUNNING'}|here")
"""
WORKER = """
import os, pathlib, sys
cells = sys.argv[sys.argv.index("--cells") + 1]
pathlib.Path(sys.argv[1], f"ran-{cells.replace(':', '-')}").write_text(os.environ["MARK"])
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands that stand in for SLURM's, and the folder where they leave traces."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in {"sbatch": SBATCH, "srun": SRUN, "sacct": SACCT, "scancel": ""}.items():
        (tools / name).write_text(f"#!{sys.executable}\n{textwrap.dedent(text)}")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    monkeypatch.setenv("STAND_IN", str(tmp_path))
    return tmp_path


def work(folder: Path, cells: int) -> Work:
    (folder / "logs").mkdir()
    (folder / "worker.py").write_text(WORKER)
    return Work(
        folder=folder,
        cells=[f"c{number}" for number in range(cells)],
        command=[sys.executable, "-S", str(folder / "worker.py"), str(folder)],
        environment={"MARK": "two words"},
        logs=folder / "logs",
        stop=folder / "stop",
    )


def wait_for(condition: Any) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("nothing happened for 20 s")


def test_cells_are_dealt_out_over_the_jobs_of_an_array() -> None:
    assert ranges(5, 2, 1000) == [(0, 2), (2, 4), (4, 5)]
    assert ranges(100_000, 20, 1000) == [(first, first + 100) for first in range(0, 100_000, 100)]
    assert ranges(1, 20, 1000) == [(0, 1)]
    for cells, size, most in ((7, 3, 2), (99, 7, 10), (1001, 1, 1000)):
        found = ranges(cells, size, most)
        assert len(found) <= most and [number for pair in found for number in range(*pair)] == [*range(cells)]


@pytest.mark.slow
def test_an_array_is_submitted_with_all_that_was_asked_for_and_its_jobs_run_the_workers(cluster: Path) -> None:
    knobs = {"partition": "short", "time": 90, "cpus": 2, "gpus": 1, "workers": 3, "cells": 2, "memory": 4.0}
    config = Slurm.Config(**knobs, setup=["export SEEN=yes"], options={"qos": "night"})
    crew = Slurm(config).start(work(cluster, 5))
    wait_for(lambda: len([*cluster.glob("ran-*")]) == 3)
    assert {path.name for path in cluster.glob("ran-*")} == {"ran-0-2", "ran-2-4", "ran-4-5"}
    assert {path.read_text() for path in cluster.glob("ran-*")} == {"two words"}
    asked = (cluster / "asked.sh").read_text()
    for line in (
        "--partition=short", "--time=90", "--cpus-per-task=2", "--gpus-per-node=1", "--array=0-2%3", "--mem=4GB",
        "--qos=night",
    ):  # fmt: skip
        assert f"#SBATCH {line}\n" in asked, asked
    assert "\nexport SEEN=yes\n" in asked and "#SBATCH --signal=USR2@90" in asked
    assert crew.running() <= 3


def test_without_sbatch_there_is_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="there is no sbatch here"):
        Slurm(Slurm.Config()).start(work(tmp_path, 1))


def test_without_submitit_there_is_a_message_that_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UserError, match="needs the package submitit") as error:
        Slurm(Slurm.Config())
    assert error.value.fix == "pip install 'transformer-zoo[slurm]'"


def test_stopping_makes_the_file_and_cancels_what_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import submitit

    class Job:
        def __init__(self, state: str) -> None:
            self.state, self.cancelled = state, False

        def done(self) -> bool:
            return self.state == "COMPLETED"

        def cancel(self, check: bool) -> None:
            self.cancelled = True

    jobs = [Job("RUNNING"), Job("PENDING"), Job("COMPLETED")]

    class Fake:
        def __init__(self, **options: Any) -> None:
            self.jobs = iter(jobs)

        def update_parameters(self, **options: Any) -> None:
            pass

        def batch(self) -> Any:
            import contextlib

            return contextlib.nullcontext()

        def submit(self, *command: Any) -> Job:
            return next(self.jobs)

    monkeypatch.setattr(submitit, "AutoExecutor", Fake)
    given = work(tmp_path, 6)
    crew = Slurm(Slurm.Config(cluster="local", cells=2)).start(given)
    assert crew.running() == 2
    crew.stop()
    assert given.stop.exists() and [job.cancelled for job in jobs] == [False, True, False]
