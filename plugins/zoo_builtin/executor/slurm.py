"""Worker jobs of a SLURM cluster, through submitit: a job array over ranges of the cells.

Each job of the array is one worker and serves one range; a job that is preempted or out of time saves its cell's state
(submitit asks for SIGUSR2 90 s before the end), and what it leaves goes into the next array. The folder of the
comparison must be on a file system that all nodes see and that keeps locks. Needs the package submitit
(``pip install 'transformer-zoo[slurm]'``). Cost: a job takes about 10 s to start beside the queue's own time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shutil
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, final

from zoo.contracts.executor import Crew, Executor, Work
from zoo.errors import UserError

__all__ = ["Slurm"]

PENDING = ("PENDING", "REQUEUED", "CONFIGURING", "UNKNOWN")


@final
class Slurm(Executor):
    """Sends worker jobs to the queue, at most ``workers`` of which run at a time."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Executor.Config):
        """What a job is given."""

        workers: int | None = 64
        """Jobs of the array that run at a time."""
        partition: str | None = None
        """Where they run; null is the cluster's own choice."""
        time: int = 240
        """Minutes that a job may take; a cell that isn't done then goes on in another job."""
        gpus: int = 0
        """GPUs of a job."""
        cpus: int = 1
        """Processor cores of a job; at least the comparison's ``threads``."""
        memory: float | None = None
        """Gibibytes of a job; null is the cluster's own choice."""
        cells: int = 20
        """Cells of a job; more where the array would else have more than ``jobs``."""
        jobs: int = 1000
        """Jobs of an array at most; the cluster's ``MaxArraySize`` less 1."""
        setup: list[str] = dataclasses.field(default_factory=list)
        """Lines of shell before a worker starts: ``module load ...``."""
        options: dict[str, Any] = dataclasses.field(default_factory=dict)
        """More options of ``sbatch`` by their long names, as ``account`` or ``qos``."""
        cluster: Literal["slurm", "local"] = "slurm"
        """``local`` has submitit run the jobs on this machine, all at a time, to try things out."""

        def __post_init__(self) -> None:
            super().__post_init__()
            for name in ("time", "cpus", "cells", "jobs"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
            if self.gpus < 0:
                raise ValueError(f"gpus is {self.gpus}; it can't be negative")

    sample: ClassVar[Mapping[str, Any]] = {"cluster": "local", "cells": 2}

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        try:
            import submitit
        except ImportError as error:
            raise UserError(
                "executor slurm needs the package submitit", fix="pip install 'transformer-zoo[slurm]'"
            ) from error
        self._submitit = submitit

    def start(self, work: Work) -> Crew:
        """Submit the array."""
        config = self.config
        if config.cluster == "slurm" and shutil.which("sbatch") is None:
            fix = "run zoo compare on a machine that can submit jobs, or use executor local"
            raise UserError("there is no sbatch here, so no job can be sent to SLURM", fix=fix)
        executor = self._submitit.AutoExecutor(folder=work.logs / "%j", cluster=config.cluster)
        executor.update_parameters(
            name="zoo-compare",
            timeout_min=config.time,
            cpus_per_task=config.cpus,
            gpus_per_node=config.gpus,
            slurm_array_parallelism=config.workers or config.jobs,
            **({} if config.memory is None else {"mem_gb": config.memory}),
            **({} if config.partition is None else {"slurm_partition": config.partition}),
            **({"slurm_setup": config.setup} if config.setup else {}),
            **({"slurm_additional_parameters": config.options} if config.options else {}),
        )
        # the worker takes the place of submitit's process, so that SLURM's signals reach it and nobody ends before it
        variables = [f"{name}={value}" for name, value in work.environment.items()]
        with executor.batch():
            jobs = [
                executor.submit(os.execvp, "env", ["env", *variables, *work.worker(first, end)])
                for first, end in ranges(len(work.cells), config.cells, config.jobs)
            ]
        return _Jobs(work, jobs)


def ranges(cells: int, size: int, most: int) -> list[tuple[int, int]]:
    """Ranges of about ``size`` cells, at most so many of them."""
    size = max(size, math.ceil(cells / most))
    return [(first, min(first + size, cells)) for first in range(0, cells, size)]


class _Jobs(Crew):
    """The jobs of an array."""

    def __init__(self, work: Work, jobs: list[Any]) -> None:
        super().__init__(work)
        self._jobs = jobs

    def running(self) -> int:
        """Jobs that haven't ended, as far as the cluster has said; it is asked once in a while."""
        self._jobs = [job for job in self._jobs if not job.done()]
        return len(self._jobs)

    def stop(self) -> None:
        """Cancel what waits; what runs finds the file."""
        super().stop()
        for job in self._jobs:
            if job.state in PENDING:
                with contextlib.suppress(Exception):  # it may have begun or ended meanwhile
                    job.cancel(check=False)
