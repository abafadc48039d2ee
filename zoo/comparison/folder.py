"""The folder of a comparison, and where in it each cell's run stands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Literal

from zoo.comparison.cells import Cell
from zoo.recipe import Comparison
from zoo.recipe.source import write_text
from zoo.training.checkpoint import Checkpoints
from zoo.training.files import write_bytes
from zoo.training.run import RunFolder, claim_run

ENDED = ("completed", "diverged")
"""Statuses of a run that would end the same way again."""


class CompareFolder:
    """Names and contents of one comparison's files.

    Attributes:
        path: absolute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.comparison = self.path / "comparison.yaml"
        self.table = self.path / "results.csv"
        self.document = self.path / "results.json"
        self.cells = self.path / "cells"

    def run(self, address: str) -> RunFolder:
        """The run of the cells with an address."""
        return RunFolder(self.cells / address)

    def recipe(self, address: str) -> Path:
        """The recipe that their run begins with."""
        return self.cells / f"{address}.yaml"

    def output(self, address: str) -> Path:
        """What their run said on standard error, each start's after the last."""
        return self.cells / f"{address}.txt"

    def begin(self, comparison: Comparison) -> None:
        """Say what is compared here."""
        self.cells.mkdir(exist_ok=True)
        write_bytes(self.comparison, write_text(comparison.plain()).encode())

    def ended(self, cell: Cell) -> dict[str, Any] | None:
        """What result.json of a run holds that needs no further start; ``None`` where one is needed."""
        found = self.result(cell)
        return found if found.get("status") in ENDED else None

    def result(self, cell: Cell) -> dict[str, Any]:
        """What result.json of a cell's run holds; empty where there is none."""
        file = self.run(cell.address).result
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}

    def said(self, cell: Cell, start: int = 0) -> str:
        """What a cell's run said on standard error, from some byte of the file on."""
        file = self.output(cell.address)
        return file.read_bytes()[start:].decode(errors="replace") if file.is_file() else ""

    def prepare(self, cell: Cell) -> Literal["begin", "resume"]:
        """Make a cell's run ready for its next start, which begins it or goes on from its newest checkpoint.

        A run that was killed before its folder was whole, or between its last checkpoint and its result, begins anew:
        there is nothing to go on from.
        """
        assert cell.recipe is not None
        run = self.run(cell.address)
        steps = Checkpoints(run.checkpoints, keep=0).steps()
        is_whole = run.recipe.is_file() and run.lock.is_file()
        if is_whole and (not steps or steps[0] < cell.recipe.trainer["max_steps"]):
            return "resume"
        if run.path.exists():
            shutil.rmtree(run.path)
        write_bytes(self.recipe(cell.address), cell.recipe.to_yaml().encode())
        return "begin"


def open_folder(comparison: Comparison, path: Path | None) -> tuple[CompareFolder, RunFolder]:
    """The folder to compare in: that of an earlier comparison, or a new one; and the hold on it.

    Raises:
        UserError: it holds something else, can't be made, or another process compares in it.
    """
    if path is not None and CompareFolder(path).comparison.is_file():
        held = RunFolder(path)
        held.hold()
    else:
        held = claim_run(comparison, path)
    folder = CompareFolder(held.path)
    folder.begin(comparison)
    return folder, held
