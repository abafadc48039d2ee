"""A worker: takes the cells of a plan that nobody has taken, one after another, and has each run in a copy of itself.

    python -m zoo.comparison.worker FOLDER PLAN [--todo FILE] [--cells A:B] [--since N] [--stop FILE] [--parent PID]

Starting Python with torch and Lightning takes longer than some cells do, so one worker serves many. It does nothing
that a cell could notice: a cell is run by a fork of it, which begins as all others do, whoever ran before.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from zoo.comparison.costs import measure_costs
from zoo.comparison.folder import CompareFolder, last_error
from zoo.comparison.meters import Readings, read_meters
from zoo.comparison.plans import Job, Plan, Shared, has_test, settled
from zoo.comparison.process import (
    FORKS,
    Ended,
    cell_environment,
    judged,
    outcome_of,
    read_answer,
    run_command,
    run_copy,
)
from zoo.errors import UserError
from zoo.recipe import Recipe, load_recipe
from zoo.registry import Registry
from zoo.training.evaluate import evaluate
from zoo.training.files import write_bytes, write_json
from zoo.training.train import train

NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""Environment variable by which torch looks for a GPU without waking it."""
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    NVML: "1",
}
"""Of every worker, so that sets have one order everywhere, and that no library starts threads of its own or wakes a GPU
before a fork."""


class Worker:
    """Serves cells until none is left or somebody wants it to stop.

    Args:
        folder: the comparison's.
        plan: what there is to do.
        jobs: the part of it that this worker takes from.
        since: see ``settled``.
        stop: a file whose existence means that it is to stop.
        parent: process without which it stops.
    """

    def __init__(
        self,
        folder: CompareFolder,
        plan: Plan,
        jobs: Sequence[Job],
        *,
        since: int | None = None,
        stop: Path | None = None,
        parent: int | None = None,
    ) -> None:
        self.folder, self.plan, self.jobs, self.stop, self.parent = folder, plan, jobs, stop, parent
        self.index = folder.read_index()
        self.since = self.index.place if since is None else since
        self._is_told = False
        self._registries: dict[str, Registry] = {}

    def work(self) -> bool:
        """Serve; whether all cells were looked at."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):  # the last is how SLURM says that time runs out
            signal.signal(number, self._take_note)
        gc.collect()
        gc.freeze()  # copies share the memory of what no collection touches
        for job in self.jobs:
            if self.stopping():
                return False
            if not self._is_settled(job):
                self._try(job)
        return not self.stopping()

    def stopping(self) -> bool:
        """Whether it is to stop."""
        is_orphan = self.parent is not None and os.getppid() != self.parent
        return self._is_told or is_orphan or (self.stop is not None and self.stop.exists())

    def _take_note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._is_told = True

    def _is_settled(self, job: Job) -> bool:
        self.index.read()
        return settled(job, self.index.entries.get(job.address), self.since)

    def _try(self, job: Job) -> None:
        """Run a cell, unless another worker does, or has done so a moment ago."""
        claim = self.folder.claims.take(job.address, title=job.title)
        if claim is None:
            return
        try:
            if not self._is_settled(job):
                began = time.monotonic()
                ended = self._found(job) or self._run(job, claim.descriptor)
                seconds = time.monotonic() - began
                self.index.append(self.folder.record(job.address, ended.status, ended.reason, seconds))
        finally:
            claim.free()

    def _found(self, job: Job) -> Ended | None:
        """How a run ended that is complete though the index doesn't have it: its worker was killed in between."""
        result = self.folder.result(job.address)
        if result.get("status") == "diverged":
            return Ended("diverged", last_error(self.folder.said(job.address)))
        is_whole = self.folder.costs_file(job.address).is_file() and (not job.test or has_test(result))
        return Ended("completed") if result.get("status") == "completed" and is_whole else None

    def _run(self, job: Job, claim: int) -> Ended:
        shared, output = self.plan.recipes[job.recipe], self.folder.output(job.address)
        output.parent.mkdir(parents=True, exist_ok=True)
        if FORKS and (shared.devices or visible_devices()) <= 1:
            serve = functools.partial(serve_cell, self.folder, job, shared, self._registry(shared))
            ended = run_copy(serve, output, self.stopping)
        else:
            ended = self._run_command(job, shared, claim)
        return Ended("failed", f"{ended.reason}\nsee {output}") if ended.status == "failed" else ended

    def _registry(self, shared: Shared) -> Registry:
        """Where components are found; it reads the text of files, and imports nothing."""
        key = repr(shared.plugins)
        if key not in self._registries:
            self._registries[key] = Registry.discover(environment={**os.environ, **shared.plugins})
        return self._registries[key]

    def _run_command(self, job: Job, shared: Shared, claim: int) -> Ended:
        """A run that ``zoo train`` makes, and what is measured of it."""
        folder, run = self.folder, str(self.folder.run(job.address).path)
        output, environment = folder.output(job.address), cell_environment(shared.plugins, job.threads)
        options: dict[str, Any] = {"environment": environment, "keep": [claim]}
        if folder.result(job.address).get("status") != "completed":
            already = output.stat().st_size if output.exists() else 0
            write_recipe(folder, job, shared)
            is_begun = folder.prepare(job.address, shared.steps) == "resume"
            place = [run, "--resume"] if is_begun else [str(folder.recipe(job.address)), "--run", run]
            code, is_told = run_command(["train", *place, "--json"], output, self.stopping, **options)
            ended = outcome_of(code, last_error(folder.said(job.address, already)), is_signalled=is_told)
            if ended.status != "completed":
                return ended
        if job.test and not has_test(folder.result(job.address)):
            with tempfile.TemporaryFile() as answer:
                arguments = ["eval", run, "--split", "test", "--json"]
                code, is_told = run_command(arguments, output, self.stopping, answer=answer, **options)
                if code:
                    return outcome_of(code, last_error(folder.said(job.address)), is_signalled=is_told)
                add_metrics(folder, job, read_answer(answer)["metrics"])
        measure = functools.partial(serve_cell, folder, job, shared, self._registry(shared))
        return run_copy(measure, output, self.stopping) if FORKS else measure()


def serve_cell(folder: CompareFolder, job: Job, shared: Shared, registry: Registry) -> Ended:
    """Do what a cell still needs: train, measure the test part, measure the costs."""
    os.environ.pop(NVML, None)
    os.environ.update(cell_environment(shared.plugins, job.threads))
    torch.set_num_threads(job.threads)
    random.seed(job.seed)  # the zoo draws from none of these; a plugin might
    np.random.seed(job.seed)
    torch.manual_seed(job.seed)
    run = folder.run(job.address).path
    known: dict[str, Any] = {}

    def trained() -> None:
        known["recipe"] = recipe = _recipe(folder, job, shared, registry)
        if folder.result(job.address).get("status") != "completed":
            is_begun = folder.prepare(job.address, shared.steps) == "resume"
            known["before"] = read_meters(recipe)
            train(recipe, run=run, resume=is_begun)
        if not folder.costs_file(job.address).is_file():
            known["note"] = _costs_noted(folder, job, recipe, known.get("before"))
        if job.test and not has_test(folder.result(job.address)):
            add_metrics(folder, job, evaluate(run, split="test")["metrics"])

    ended = judged(trained, _files(registry, shared))
    return Ended("completed", known.get("note", "")) if ended.status == "completed" else ended


def _costs_noted(folder: CompareFolder, job: Job, recipe: Recipe, before: Readings | None) -> str:
    """Measure what a run took; why that couldn't be done, if so: a result counts without its costs too."""
    try:
        write_json(folder.costs_file(job.address), measure_costs(recipe, folder.run(job.address).path, before))
    except Exception as error:  # whatever a plugin raises where it is asked for more than to train
        traceback.print_exc()
        return f"its costs weren't measured: {type(error).__name__}: {error}"
    return ""


def write_recipe(folder: CompareFolder, job: Job, shared: Shared) -> Path:
    """The recipe of a cell as a file."""
    path, text = folder.recipe(job.address), shared.with_seed(job.seed).encode()
    if not path.is_file() or path.read_bytes() != text:
        write_bytes(path, text)
    return path


def _recipe(folder: CompareFolder, job: Job, shared: Shared, registry: Registry) -> Recipe:
    """The recipe of a cell, with the sources that its address was made of.

    Raises:
        UserError: a plugin was edited since.
    """
    recipe = load_recipe(write_recipe(folder, job, shared), registry=registry)
    now = recipe.lock()["components"]
    if edited := [key for key in now if now[key]["sha256"] != shared.sources.get(key, {}).get("sha256")]:
        raise UserError(
            f"the source of {', '.join(edited)} has changed since the comparison began",
            fix="compare again in the same folder: what was edited gets runs of its own",
        )
    return recipe


def _files(registry: Registry, shared: Shared) -> list[Path]:
    """Source files of the components of a recipe."""
    keys = set(shared.sources)
    return [record.file for record in registry.components() if record.key in keys and record.file]


def add_metrics(folder: CompareFolder, job: Job, metrics: dict[str, float]) -> None:
    """Add what was measured to a run's result."""
    result = folder.result(job.address)
    result["metrics"] = {**result["metrics"], **metrics}
    write_json(folder.run(job.address).result, result)


def visible_devices() -> int:
    """GPUs that this process may use, told without waking their driver, which would not survive a fork."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [*Path("/dev").glob("nvidia[0-9]*")] if said is None else [name for name in said.split(",") if name]
    return len(names)


def main(arguments: Sequence[str]) -> int:
    """Be a worker; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m zoo.comparison.worker", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--todo", type=Path, help="numbers of the plan's cells; by default all")
    parser.add_argument("--cells", default=":", help="a range of these")
    parser.add_argument("--since", type=int, help="place in the index; what failed before is tried again")
    parser.add_argument("--stop", type=Path, help="a file that makes it stop")
    parser.add_argument("--parent", type=int, help="the process with which it ends")
    said = parser.parse_args(arguments)
    if said.todo is not None and not said.todo.is_file():
        return 0  # all was done before this worker had begun
    plan = Plan.read(said.plan)
    numbers = range(len(plan.jobs)) if said.todo is None else json.loads(said.todo.read_bytes())
    first, end = (int(text) if text else None for text in said.cells.split(":"))
    jobs = [plan.jobs[number] for number in numbers[first:end]]
    options = {"since": said.since, "stop": said.stop, "parent": said.parent}
    worker = Worker(CompareFolder(said.folder), plan, jobs, **options)
    return 0 if worker.work() else 128 + signal.SIGTERM


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
