"""An executor whose workers are made up: cells end at once, with results that follow from their places in the grid."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from zoo.comparison.cells import Status
from zoo.comparison.folder import CompareFolder
from zoo.comparison.plans import Job, Plan
from zoo.contracts.executor import Crew, Executor, Work
from zoo.training.files import write_json


class Runs(Executor):
    """The loss is 2 + seed / 10, for deep models less by 0.5 and a hundredth of the seed.

    Attributes:
        asked: variant and seed of every run that was made, in order.
        ends: how the runs of a variant and seed end, if not well.
        stop_at: the run in which this process gets a Ctrl-C.
        lazy: whether workers end without having run anything.
        devices: what each crew was told of the devices of a cell.
    """

    def __init__(self) -> None:
        super().__init__(self.Config())
        self.asked: list[tuple[str, int]] = []
        self.ends: dict[tuple[str, int], Status] = {}
        self.stop_at: tuple[str, int] | None = None
        self.lazy = False
        self.devices: list[int] = []
        self.crews: list[MadeUp] = []

    def start(self, work: Work) -> Crew:
        """Begin."""
        self.devices.append(work.devices)
        self.crews.append(MadeUp(work, self))
        return self.crews[-1]

    def run(self, folder: CompareFolder, job: Job) -> None:
        """One run."""
        key = (job.variant, job.seed)
        self.asked.append(key)
        status = self.ends.get(key, "completed")
        if key == self.stop_at:
            status = "interrupted"
            os.kill(os.getpid(), signal.SIGINT)
        loss = 2 + job.seed / 10 - (0.5 + job.seed / 100 if job.variant == "deep" else 0)
        metrics = {"train_loss": 1.0, "val_loss": loss, "val_accuracy": 0.5} if status == "completed" else {}
        metrics |= {"test_loss": loss + 1} if job.test and metrics else {}
        result: dict[str, Any] = {"status": status, "metrics": metrics, "parameters": 10, "steps": 4, "tokens": 8}
        run = folder.run(job.address)
        run.path.mkdir(parents=True, exist_ok=True)
        write_json(run.result, {**result, "wall_s": 1.5})
        folder.index.append(folder.record(job.address, status, "why" if status == "failed" else "", 2.0))


class MadeUp(Crew):
    """Makes a run each time it is asked whether it is still at work."""

    def __init__(self, work: Work, runs: Runs) -> None:
        super().__init__(work)
        self.runs, self.folder = runs, CompareFolder(work.folder)
        plan = Plan.read(Path(work.command[5]))
        numbers = json.loads(Path(work.command[work.command.index("--todo") + 1]).read_text())
        self.jobs = [] if runs.lazy else [plan.jobs[number] for number in numbers]
        assert runs.lazy or [job.address for job in self.jobs] == list(work.cells)
        self.is_stopped = False

    def running(self) -> int:
        """Whether there is more to do."""
        if not self.jobs or self.is_stopped:
            return 0
        self.runs.run(self.folder, self.jobs.pop(0))
        return 1

    def stop(self) -> None:
        """No further run is made."""
        super().stop()
        self.is_stopped = True
