"""The comparison itself: check all cells, run those that haven't ended, seed by seed, and write the results."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from zoo.builder import build_executor
from zoo.comparison.board import Board
from zoo.comparison.budget import calibrate
from zoo.comparison.cells import Cell
from zoo.comparison.folder import CompareFolder, open_folder
from zoo.comparison.grid import Grid
from zoo.comparison.index import Record
from zoo.comparison.plans import Plan
from zoo.comparison.power import check_plan
from zoo.comparison.process import POLL
from zoo.comparison.results import document, write_results
from zoo.comparison.tune import choices
from zoo.comparison.worker import ENVIRONMENT
from zoo.contracts.executor import Executor, Work
from zoo.errors import Interrupted, RunFailed
from zoo.recipe import Comparison
from zoo.training.files import write_bytes
from zoo.training.signals import Signals

WRITE_EVERY = 30.0
"""Seconds from one writing of the results to the next, while cells are being run."""
WRITE_SHARE = 20
"""How many times as long as the last writing took there is none."""
RETRIES = 3
"""Crews in a row that may end without having brought a cell further, as when workers are killed."""
PATIENCE = 10.0
"""Seconds for which workers are waited for that have nothing to do any more; a cluster tells their ends late."""


class Watcher(Protocol):
    """Who is told how a comparison goes."""

    def note(self, text: str) -> None:
        """Something to know before cells are run."""

    def open(self, board: Board) -> None:
        """Cells are going to be run."""

    def look(self, board: Board) -> None:
        """Some time has passed; asked several times a second."""

    def end(self, board: Board, record: Record) -> None:
        """A run has ended; the record says how."""


class Unwatched:
    """A watcher that says nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def open(self, board: Board) -> None:
        """Say nothing."""

    def look(self, board: Board) -> None:
        """Say nothing."""

    def end(self, board: Board, record: Record) -> None:
        """Say nothing."""


def compare_variants(
    comparison: Comparison,
    run: Path | None = None,
    watcher: Watcher | None = None,
    *,
    executor: str | None = None,
    workers: int | None = None,
) -> dict[str, Any]:
    """Run what has not been run.

    Args:
        comparison: what to compare.
        run: the folder; by default runs/RECIPE-N. In that of an earlier comparison, runs that ended are taken over,
            interrupted and failed ones go on, and new ones are added. Several processes may compare in one folder.
        watcher: who is told how it goes.
        executor: name of the executor; by default the comparison's.
        workers: at a time; by default the executor's.

    Returns:
        ``folder``, ``cells`` and ``verdicts``, as results.json holds them.

    Raises:
        UserError: a mistake, no valid cell, or a plan that can lead to no verdict; nothing was written.
        Interrupted: a signal came; the running cells have saved their states.
        RunFailed: no worker could run anything.
    """
    found = check_plan(comparison)
    grid = Grid(comparison)
    starter = build_executor(executor_settings(comparison, executor, workers), comparison.registry)
    folder = open_folder(comparison, run)
    watcher = watcher or Unwatched()
    for line in [*found, *grid.remarks()]:
        watcher.note(line)
    folder.claims.sweep()
    about = folder.claims.take(f"compare-{socket.gethostname()}-{os.getpid()}")
    if comparison.seconds is not None:
        for place, steps in calibrate(grid.reported(), folder.path, comparison.seconds, watcher.note).items():
            grid.settle(place, {"trainer.max_steps": steps})
    runs = Runs(folder, comparison, starter, watcher)
    try:
        tuning = grid.tuning()
        if tuning:
            runs.run(tuning)
        chosen = choices(comparison, tuning)
        for (variant, task), choice in chosen.items():
            watcher.note(f"{variant} on {task}: {choice.line()}")
        cells = grid.reported({place: choice.point for place, choice in chosen.items()})
        runs.run(cells)
        return write_results(folder, comparison, [*tuning, *cells])
    finally:
        runs.signals.restore()
        if about:
            about.free()


def plan(comparison: Comparison, run: Path | None = None) -> dict[str, Any]:
    """What ``compare_variants`` would return before anything has run: invalid cells, ended ones, planned ones.

    ``remarks`` beside these holds what can be said of the plan.

    Raises:
        UserError: as ``compare_variants``.
    """
    found = check_plan(comparison)
    grid = Grid(comparison)
    build_executor(executor_settings(comparison), comparison.registry)
    cells = [*grid.tuning(), *grid.reported()]
    folder = CompareFolder(run) if run is not None and CompareFolder(run).comparison.is_file() else None
    if folder:
        board = Board(folder, Plan.of(cells, is_tuned=bool(comparison.tune)))
        for cell in cells:
            if record := board.known.get(cell.address):
                _take_over(cell, record)
    return {
        **document(folder.path if folder else None, comparison, cells),
        "remarks": [*found, *grid.remarks()],
    }


def executor_settings(
    comparison: Comparison, executor: str | None = None, workers: int | None = None
) -> Mapping[str, Any]:
    """Name and knobs of the executor: the comparison's, unless the command line says otherwise."""
    said = comparison.executor
    settings = dict(said) if executor in (None, said["name"]) else {"name": executor}
    return settings if workers is None else {**settings, "workers": workers}


class Runs:
    """Has cells run in a folder, from the first signal on only to an end that can be gone on from.

    Args:
        folder: the comparison's.
        comparison: what is compared.
        executor: starts the workers.
        watcher: who is told how it goes.

    Attributes:
        signals: those that this process has received.
    """

    def __init__(self, folder: CompareFolder, comparison: Comparison, executor: Executor, watcher: Watcher) -> None:
        self.folder, self.comparison, self.executor, self.watcher = folder, comparison, executor, watcher
        self.signals = Signals()
        self.signals.install()
        self._begun: list[Cell] = []
        self._written, self._took = time.monotonic(), 0.0

    def run(self, cells: Sequence[Cell]) -> None:
        """Run those of some cells that haven't ended, and note in each how it went.

        Raises:
            Interrupted: a signal came before all had ended; the running cells have saved their states.
            RunFailed: no worker could run anything.
        """
        self._begun += cells
        plan = Plan.of(_in_order(cells), is_tuned=bool(self.comparison.tune))
        board = Board(self.folder, plan)
        board.forget_lost()
        by_address: dict[str, list[Cell]] = {}
        for cell in cells:
            if cell.base is not None:
                by_address.setdefault(cell.address, []).append(cell)
        self._apply(board.known.values(), by_address)
        file = plan.write(self.folder.plans)
        self.watcher.open(board)
        try:
            self._run_rounds(board, file, by_address)
        finally:
            self._look(board, by_address)
        if board.waiting and (number := self._signal()):
            write_results(self.folder, self.comparison, self._begun)
            stopped = [cell.result.get("steps", 0) for cell in cells if cell.status == "interrupted"]
            raise Interrupted(number, max(stopped, default=0))

    def _run_rounds(self, board: Board, plan: Path, by_address: Mapping[str, Sequence[Cell]]) -> None:
        """Start crews until nothing is left: one may leave what others have claimed, or what it was stopped in.

        Raises:
            RunFailed: workers end without having brought a cell further.
        """
        numbers = {job.address: number for number, job in enumerate(board.plan.jobs)}
        progress, idle = self._progress(board), 0
        while board.waiting and not self._signal():
            held = {name for name, _ in self.folder.claims.held()}
            free = [address for address in board.waiting if address not in held]
            if not free:  # another process is at work on all that is left
                time.sleep(POLL)
                self._look(board, by_address)
                continue
            place = board.index.place
            self._run_crew(board, plan, [numbers[address] for address in free], by_address)
            reached = self._progress(board)
            idle = 0 if reached > progress else idle + 1
            progress = max(progress, reached)
            was_begun = board.index.place > place or any(name in board.jobs for name in self.folder.claims.names())
            if board.waiting and not self._signal() and (idle > RETRIES or (idle and not was_begun)):
                raise self._idle(len(board.waiting))

    def _progress(self, board: Board) -> tuple[int, int]:
        """Grows with every cell that ends, and with the steps of those that were interrupted."""
        steps = sum(cell.result.get("steps", 0) for cell in self._begun if cell.status == "interrupted")
        return len(board.jobs) - len(board.waiting), steps

    def _run_crew(
        self, board: Board, plan: Path, numbers: Sequence[int], by_address: Mapping[str, Sequence[Cell]]
    ) -> None:
        """One crew, from its start to its end."""
        name = f"{socket.gethostname()}-{os.getpid()}-{time.monotonic_ns()}"
        todo, stop = self.folder.logs / f"{name}.todo", self.folder.logs / f"{name}.stop"
        write_bytes(todo, json.dumps(numbers).encode())
        # -P: a file of the working directory is no module
        command = [sys.executable, "-P", "-m", "zoo.comparison.worker", str(self.folder.path), str(plan)]
        command += ["--todo", str(todo), "--since", str(board.since), "--stop", str(stop)]
        work = Work(
            folder=self.folder.path,
            cells=[board.plan.jobs[number].address for number in numbers],
            command=command,
            environment={**ENVIRONMENT, **self.comparison.registry.environment()},
            logs=self.folder.logs,
            stop=stop,
            devices=max((shared.devices for shared in board.plan.recipes), default=1) or 1,
        )
        crew = self.executor.start(work)
        try:
            while crew.running() and board.waiting:
                self._look(board, by_address)
                if self._signal() and not stop.exists():
                    crew.stop()
                time.sleep(POLL)
        finally:
            if crew.running():
                crew.stop()
            ended = time.monotonic()
            while crew.running() and (board.waiting or time.monotonic() - ended < PATIENCE):
                time.sleep(POLL)
            for file in (todo, stop):
                file.unlink(missing_ok=True)
        self._look(board, by_address)

    def _look(self, board: Board, by_address: Mapping[str, Sequence[Cell]]) -> None:
        records = board.look()
        self._apply(records, by_address)
        for record in records:
            self.watcher.end(board, record)
        self.watcher.look(board)
        now = time.monotonic()
        if board.waiting and now - self._written > max(WRITE_EVERY, WRITE_SHARE * self._took):
            write_results(self.folder, self.comparison, self._begun)
            self._written = time.monotonic()
            self._took = self._written - now

    @staticmethod
    def _apply(records: Any, by_address: Mapping[str, Sequence[Cell]]) -> None:
        for record in records:
            for cell in by_address[record.address]:
                _take_over(cell, record)

    def _signal(self) -> int:
        return self.signals.number(*self.signals.flags())

    def _idle(self, waiting: int) -> RunFailed:
        """What to say when workers end without having run anything."""
        write_results(self.folder, self.comparison, self._begun)
        logs = [path for path in self.folder.logs.rglob("*") if path.is_file() and path.stat().st_size]
        newest = max(logs, key=lambda path: path.stat().st_mtime_ns, default=None)
        said = newest.read_text(errors="replace").splitlines()[-5:] if newest else []
        where = f"; see {newest}" if newest else ""
        return RunFailed(
            "\n".join([f"the workers end before their cells do, of which {waiting} are left{where}", *said])
        )


def _take_over(cell: Cell, record: Record) -> None:
    cell.status, cell.reason = record.status, record.reason
    cell.result, cell.costs = record.result, record.costs


def _in_order(cells: Sequence[Cell]) -> list[Cell]:
    """Cells in the order in which they are best begun: all first seeds first, so that pairs are early complete."""
    seeds = {seed: place for place, seed in enumerate(dict.fromkeys(cell.seed for cell in cells))}
    return sorted(cells, key=lambda cell: seeds[cell.seed])
