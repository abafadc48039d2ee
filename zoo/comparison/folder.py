"""The folder of a comparison, and where in it each cell's run stands."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from zoo.comparison.claims import Claims
from zoo.comparison.index import Index, Record
from zoo.errors import UserError
from zoo.recipe import Comparison
from zoo.recipe.source import write_text
from zoo.training.checkpoint import Checkpoints
from zoo.training.files import write_bytes
from zoo.training.run import RunFolder, claim_run

ENDED = ("completed", "diverged")
"""Statuses of a run that would end the same way again."""
BEGINNING = 2.0
"""Seconds in which another process has said what it compares in a folder that it holds."""
COSTS = "costs.json"
"""File of a run folder that says what the run took."""


class CompareFolder:
    """Names and contents of one comparison's files.

    Attributes:
        path: absolute.
        cells: the run folder of each address, its recipe and what it said.
        claims: who runs what.
        plans: what workers were told.
        logs: what workers said.
        index: how each run ended.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.comparison = self.path / "comparison.yaml"
        self.table = self.path / "results.csv"
        self.document = self.path / "results.json"
        self.cells = self.path / "cells"
        self.plans = self.path / "plans"
        self.logs = self.path / "workers"
        self.claims = Claims(self.path / "claims")
        self.index = Index(self.path / "index.jsonl")

    def run(self, address: str) -> RunFolder:
        """The run of the cells with an address."""
        return RunFolder(self._place(address))

    def recipe(self, address: str) -> Path:
        """The recipe that their run begins with."""
        return self._place(address, ".yaml")

    def output(self, address: str) -> Path:
        """What their run said on standard error, each start's after the last."""
        return self._place(address, ".txt")

    def costs_file(self, address: str) -> Path:
        """What their run took."""
        return self._place(address) / COSTS

    def _place(self, address: str, suffix: str = "") -> Path:
        return self.cells / f"{address}{suffix}"

    def begin(self, comparison: Comparison) -> None:
        """Say what is compared here, before anything else is put here: by that others know the folder."""
        text = write_text(comparison.plain()).encode()
        if not self.comparison.is_file() or self.comparison.read_bytes() != text:
            write_bytes(self.comparison, text)
        for folder in (self.cells, self.logs):
            folder.mkdir(exist_ok=True)

    def result(self, address: str) -> dict[str, Any]:
        """What result.json of a run holds; empty where there is none."""
        return _read_json(self.run(address).result)

    def costs(self, address: str) -> dict[str, Any]:
        """What costs.json of a run holds; empty where there is none."""
        return _read_json(self.costs_file(address))

    def said(self, address: str, start: int = 0) -> str:
        """What a run said on standard error, from some byte of the file on."""
        file = self.output(address)
        return file.read_bytes()[start:].decode(errors="replace") if file.is_file() else ""

    def prepare(self, address: str, steps: int) -> Literal["begin", "resume"]:
        """Make a run of so many steps ready for its next start, which begins it or goes on from its newest checkpoint.

        A run that was killed before its folder was whole begins anew. One that was killed between its last checkpoint
        and its result takes its last steps again: there is nothing to go on to from the last one.
        """
        run = self.run(address)
        checkpoints = Checkpoints(run.checkpoints, keep=0)
        is_whole = run.recipe.is_file() and run.lock.is_file()
        had = checkpoints.steps()
        for step in had:
            if step >= steps:
                checkpoints.path(step).unlink()
        if is_whole and (not had or checkpoints.steps()):
            return "resume"
        if run.path.exists():
            shutil.rmtree(run.path)
        return "begin"

    def runs(self) -> set[str]:
        """Addresses whose run folder is there."""
        if not self.cells.is_dir():
            return set()
        with os.scandir(self.cells) as entries:
            return {entry.name for entry in entries if "." not in entry.name}

    def read_index(self) -> Index:
        """The index, up to date; made from the run folders again where it is missing or damaged."""
        self.index.read()
        if self.index.damaged or (not self.index.path.is_file() and self.runs()):
            self.index.rebuild(self._records())
        return self.index

    def _records(self) -> Iterator[Record]:
        for address in sorted(self.runs()):
            if result := self.result(address):
                reason = "" if result["status"] == "completed" else last_error(self.said(address))
                yield self.record(address, result["status"], reason)

    def record(self, address: str, status: Any, reason: str = "", seconds: float = 0.0) -> Record:
        """The line of the index for a run that has ended so."""
        result = {} if status == "invalid" else self.result(address)
        costs = self.costs(address)
        return Record(
            address=address, status=status, reason=reason, seconds=round(seconds, 3), result=result, costs=costs
        )


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def last_error(said: str) -> str:
    """The message with which a run ended, of all that it said; behind the exception, if it was a bug."""
    before, _, message = f"\n{said}".rpartition("\nerror: ")
    bug = before.rpartition("\n")[2] if "\nTraceback (most recent call last):" in before else ""
    return "\n".join(filter(None, [bug, message.strip()]))


def _is_begun(folder: CompareFolder) -> bool:
    """Whether a folder becomes a comparison's within a moment, as another process makes it one."""
    deadline = time.monotonic() + BEGINNING
    while not folder.comparison.is_file():
        names = [path.name for path in folder.path.iterdir()] if folder.path.is_dir() else []
        if time.monotonic() > deadline or not all(name.startswith(f".{folder.comparison.name}") for name in names):
            return folder.comparison.is_file()
        time.sleep(0.02)
    return True


def open_folder(comparison: Comparison, path: Path | None) -> CompareFolder:
    """The folder to compare in: that of an earlier comparison, where others may be at work too, or a new one.

    Raises:
        UserError: it holds something else, or can't be made.
    """
    if path is None or not CompareFolder(path).comparison.is_file():
        try:
            held = claim_run(comparison, path)
        except UserError:
            if path is None or not _is_begun(CompareFolder(path)):
                raise
        else:
            folder = CompareFolder(held.path)
            folder.begin(comparison)
            held.release()
            return folder
    folder = CompareFolder(path)
    folder.begin(comparison)
    return folder
