"""A cell's run in a process of its own, so that whatever becomes of it, the comparison goes on.

It is the command ``zoo train``: what a cell does can be done again by hand, and Lightning can start it for each of
several devices.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from zoo.comparison.cells import Cell, Status
from zoo.comparison.folder import CompareFolder
from zoo.training.metrics import Row, read_metrics
from zoo.training.signals import Signals

POLL = 0.2
"""Seconds from one look at a run to the next."""

STOPPING = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = tuple(128 + number for number in STOPPING)
"""Exit codes of a run that has saved its state."""


class Watcher(Protocol):
    """Who is told how a comparison goes."""

    def open(self, folder: Path, waiting: int, ended: int) -> None:
        """The folder is there; so many runs are needed, and so many cells have theirs."""

    def begin(self, cell: Cell, number: int, total: int) -> None:
        """A run begins or goes on, as ``number`` of ``total``."""

    def step(self, cell: Cell, row: Row) -> None:
        """Its newest row of metrics."""

    def end(self, cell: Cell) -> None:
        """It has ended; the status says how."""


def run_cell(folder: CompareFolder, cell: Cell, signals: Signals, watcher: Watcher) -> None:
    """Start a cell's run, wait for its end, and note its status, reason and result.

    A signal that comes meanwhile is passed on once, so that the run saves its state.
    """
    command = _command(folder, cell)
    output = folder.output(cell.address)
    already = output.stat().st_size if output.exists() else 0
    with output.open("ab") as file:
        # a group of its own: Ctrl-C of a terminal would reach it a second time, and stop it without saving
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
            env=_environment(cell),
            process_group=0,
        )
        try:
            _wait(process, folder, cell, signals, watcher)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    error = last_error(folder.said(cell, already))
    cell.status, cell.reason = _outcome(process.returncode, error, is_signalled=bool(_number(signals)))
    if cell.status == "failed":
        cell.reason += f"\nsee {output}"
    cell.result = folder.result(cell) if cell.status != "invalid" else {}


def last_error(said: str) -> str:
    """The message with which a command ended, of all that it said; behind the exception, if it was a bug."""
    before, _, message = f"\n{said}".rpartition("\nerror: ")
    bug = before.rpartition("\n")[2] if "\nTraceback (most recent call last):" in before else ""
    return "\n".join(filter(None, [bug, message.strip()]))


def _command(folder: CompareFolder, cell: Cell) -> list[str]:
    run = str(folder.run(cell.address).path)
    zoo = [sys.executable, "-P", "-m", "zoo", "train"]  # -P: a file of the working directory is no module
    if folder.prepare(cell) == "resume":
        return [*zoo, run, "--resume", "--json"]
    return [*zoo, str(folder.recipe(cell.address)), "--run", run, "--json"]


def _environment(cell: Cell) -> dict[str, str]:
    assert cell.recipe is not None
    return {**os.environ, **cell.recipe.registry.environment()}


def _wait(
    process: subprocess.Popen[bytes], folder: CompareFolder, cell: Cell, signals: Signals, watcher: Watcher
) -> None:
    file, told = folder.run(cell.address).metrics, False
    while True:
        try:
            process.wait(POLL)
            return
        except subprocess.TimeoutExpired:
            if (number := _number(signals)) and not told:
                process.send_signal(number)
                told = True
            if row := _newest(file):
                watcher.step(cell, row)


def _number(signals: Signals) -> int:
    return signals.number(*signals.flags())


def _newest(file: Path) -> Row | None:
    rows = read_metrics(file) if file.exists() else []
    return rows[-1] if rows else None


def _outcome(code: int, error: str, *, is_signalled: bool) -> tuple[Status, str]:
    """Status and reason of a run that ended with an exit code and a message."""
    if code == 0:
        return "completed", ""
    if code in INTERRUPTED or (is_signalled and -code in STOPPING):
        return "interrupted", error
    if code < 0:
        return "failed", f"killed by signal {-code}, as a machine that is out of memory does"
    by_code: dict[int, Status] = {2: "invalid", 3: "diverged"}
    return by_code.get(code, "failed"), error
