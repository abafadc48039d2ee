"""Conformance of an executor: it starts workers that are a small program of the kit, and looks at what they did."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from zoo.contracts.executor import Crew, Work
from zoo.errors import UserError
from zoo.testing.modules import documented_config
from zoo.testing.suite import Check, Failed, Skipped, Suite

MARK = "ZOO_KIT_MARK"
"""Environment variable that workers write down."""
LONGEST = 60.0
"""Seconds after which workers that should have ended never will."""

PROGRAM = f"""
import os, pathlib, signal, sys, time
folder, stop, how = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
first, end = map(int, sys.argv[sys.argv.index("--cells") + 1].split(":"))
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
signal.signal(signal.SIGUSR2, lambda *_: told.append(1))
(folder / f"worker-{{os.getpid()}}").touch()
for number in range(first, end):
    if told or stop.exists():
        break
    try:
        file = os.open(folder / f"cell-{{number}}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        continue
    os.write(file, os.environ.get("{MARK}", "").encode())
    if how == "die" and number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    while how == "wait" and not told and not stop.exists() and time.monotonic() - began < float(sys.argv[4]):
        time.sleep(0.02)
if told or stop.exists():
    (folder / f"saved-{{os.getpid()}}").touch()
"""
"""A worker: takes a cell by making a file; it may wait in it until it is stopped, or die in the first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExecutorCase:
    """One executor with a number of workers and of cells."""

    component: type[Any]
    workers: int | None
    cells: int

    @property
    def label(self) -> str:
        """``workers=2, 5 cells``."""
        return f"workers={self.workers}, {self.cells} cells"

    def make(self) -> Any:
        """The executor; one whose package isn't there is no case."""
        try:
            knobs = dict(self.component.sample) | ({} if self.workers is None else {"workers": self.workers})
            return self.component(self.component.Config(**knobs))
        except UserError as error:
            raise Skipped(error.what) from error

    @contextlib.contextmanager
    def started(self, how: str) -> Iterator[tuple[Crew, Path]]:
        """Workers that do ``how``, and the folder in which they leave files; stopped at the end."""
        executor = self.make()
        with tempfile.TemporaryDirectory() as name:
            folder, logs = Path(name) / "cells", Path(name) / "logs"
            folder.mkdir()
            logs.mkdir()
            program, stop = Path(name) / "worker.py", Path(name) / "stop"
            program.write_text(PROGRAM)
            crew = executor.start(
                Work(
                    folder=folder,
                    cells=[f"cell-{number}" for number in range(self.cells)],
                    command=[sys.executable, "-S", str(program), str(folder), str(stop), how, str(LONGEST)],
                    environment={MARK: "seen"},
                    logs=logs,
                    stop=stop,
                )
            )
            try:
                yield crew, folder
            finally:
                stop.touch()
                _wait(lambda: not crew.running(), "workers to end after their stop file was there")


def _wait(condition: Callable[[], bool], what: str) -> None:
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > LONGEST:
            raise Failed(f"waited {LONGEST:.0f} s for {what}")
        time.sleep(0.02)


def _count(folder: Path, kind: str) -> int:
    return len([*folder.glob(f"{kind}-*")])


class ExecutorSubject:
    """An executor class."""

    offers: frozenset[str] = frozenset()

    def __init__(self, component: type[Any], **others: Any) -> None:
        self.component = component

    def cases(self, check: Check) -> Iterator[ExecutorCase]:
        """One worker, several, more than there are cells, and as many as the executor chooses."""
        for workers, cells in ((1, 1), (None, 5), (2, 5), (3, 2)) if check.knobs else ((2, 4),):
            yield ExecutorCase(component=self.component, workers=workers, cells=cells)


SUITE = Suite("executor", ExecutorSubject)


@SUITE.check("every cell is run")
def runs_all(case: ExecutorCase) -> str:
    """Whatever the number of workers, all ranges together are all cells."""
    with case.started("run") as (crew, folder):
        _wait(lambda: not crew.running(), "workers to end by themselves")
        if missing := {f"cell-{number}" for number in range(case.cells)} - {path.name for path in folder.iterdir()}:
            raise Failed(f"nobody ran {', '.join(sorted(missing))}")
        return f"{case.label}: {_count(folder, 'worker')} workers"


@SUITE.check("no more workers than cells", knobs=False)
def no_idle_workers(case: ExecutorCase) -> None:
    """A worker takes seconds to start, so one that can have nothing to do isn't."""
    for few in (dataclasses.replace(case, workers=5, cells=1), dataclasses.replace(case, workers=3, cells=2)):
        with few.started("run") as (crew, folder):
            _wait(lambda crew=crew: not crew.running(), "workers to end by themselves")  # type: ignore[misc]
            if (count := _count(folder, "worker")) > few.cells:
                raise Failed(f"started {count} workers for {few.cells} cells")


@SUITE.check("the environment reaches the workers and changes nothing here", knobs=False)
def environment(case: ExecutorCase) -> None:
    """Plugins and settings travel in it."""
    before = dict(os.environ)
    with case.started("run") as (crew, folder):
        _wait(lambda: not crew.running(), "workers to end by themselves")
        for path in folder.glob("cell-*"):
            if path.read_text() != "seen":
                raise Failed(f"the worker of {path.name} lacks a variable of work.environment")
    if dict(os.environ) != before:
        raise Failed("the environment of this process has changed")


@SUITE.check("start returns at once", knobs=False)
def returns_at_once(case: ExecutorCase) -> None:
    """Whoever starts workers has other things to do while they run."""
    began = time.monotonic()
    with case.started("wait") as (crew, folder):
        _wait(lambda: _count(folder, "cell") > 0, "the first cell to be taken")
        if not crew.running():
            raise Failed("says that no worker runs while one does")
        if time.monotonic() - began >= LONGEST:
            raise Failed("waited for the workers to end")


@SUITE.check("stop reaches every worker", knobs=False)
def stops(case: ExecutorCase) -> None:
    """Each saves its state and ends, and no further cell is begun."""
    with case.started("wait") as (crew, folder):
        _wait(lambda: _count(folder, "cell") > 0, "the first cell to be taken")
        began = time.monotonic()
        crew.stop()
        if time.monotonic() - began > 5:
            raise Failed("stop waits for the workers")
        _wait(lambda: not crew.running(), "workers to end after stop")
        workers, saved, cells = (_count(folder, kind) for kind in ("worker", "saved", "cell"))
        if saved < workers or cells > workers:
            raise Failed(f"of {workers} workers {saved} ended as they should, and {cells} cells were begun")


@SUITE.check("a worker that dies is no error", knobs=False)
def survives_deaths(case: ExecutorCase) -> None:
    """Its cells go to the next crew, so the crew must come to an end."""
    with case.started("die") as (crew, folder):
        _wait(lambda: not crew.running(), "a crew to end of which a worker was killed")
        if not (folder / "cell-0").exists():
            raise Failed("the cell of the worker that dies was never begun")


@SUITE.check("refuses a number of workers below 1", knobs=False)
def refuses_none(case: ExecutorCase) -> None:
    """0 would run nothing and say nothing."""
    for workers in (0, -1):
        try:
            case.component.Config(**{**case.component.sample, "workers": workers})
        except ValueError:
            continue
        raise Failed(f"takes workers={workers}")


@SUITE.check("every knob has a type, a default and a docstring")
def documented(case: ExecutorCase) -> None:
    """What the tables of the docs are made of."""
    documented_config(case)
