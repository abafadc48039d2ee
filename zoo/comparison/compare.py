"""The comparison itself: check all cells, run those that haven't ended, seed by seed, and write the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.comparison.cells import Cell
from zoo.comparison.folder import CompareFolder, open_folder
from zoo.comparison.grid import make_grid
from zoo.comparison.process import Watcher, last_error, run_cell
from zoo.comparison.results import document, write_results
from zoo.errors import Interrupted
from zoo.recipe import Comparison
from zoo.training.metrics import Row
from zoo.training.signals import Signals


class Unwatched:
    """A watcher that says nothing."""

    def open(self, folder: Path, waiting: int, ended: int) -> None:
        """Say nothing."""

    def begin(self, cell: Cell, number: int, total: int) -> None:
        """Say nothing."""

    def step(self, cell: Cell, row: Row) -> None:
        """Say nothing."""

    def end(self, cell: Cell) -> None:
        """Say nothing."""


def compare_variants(comparison: Comparison, run: Path | None = None, watcher: Watcher | None = None) -> dict[str, Any]:
    """Run what has not been run, each cell in a process of its own.

    Args:
        comparison: what to compare.
        run: the folder; by default runs/RECIPE-N. In that of an earlier comparison, runs that ended are taken over,
            interrupted and failed ones go on, and new ones are added.
        watcher: who is told how it goes.

    Returns:
        ``folder``, ``cells`` and ``verdicts``, as results.json holds them.

    Raises:
        UserError: a mistake, or no valid cell; nothing was written.
        Interrupted: a signal came; the running cell has saved its state.
    """
    cells = make_grid(comparison)
    folder, held = open_folder(comparison, run)
    try:
        return _run(folder, comparison, cells, watcher or Unwatched())
    finally:
        held.release()


def plan(comparison: Comparison, run: Path | None = None) -> dict[str, Any]:
    """What ``compare_variants`` would return before anything has run: invalid cells, ended ones, planned ones.

    Raises:
        UserError: as ``compare_variants``.
    """
    cells = make_grid(comparison)
    folder = CompareFolder(run) if run is not None and CompareFolder(run).comparison.is_file() else None
    if folder:
        _take_over(folder, cells)
    return document(folder.path if folder else None, comparison, cells)


def _run(folder: CompareFolder, comparison: Comparison, cells: Sequence[Cell], watcher: Watcher) -> dict[str, Any]:
    _take_over(folder, cells)
    waiting = _waiting(cells, comparison.seeds)
    watcher.open(folder.path, len(waiting), sum(bool(cell.result) for cell in cells))
    signals = Signals()
    signals.install()
    try:
        for number, group in enumerate(waiting, start=1):
            watcher.begin(group[0], number, len(waiting))
            run_cell(folder, group[0], signals, watcher)
            for other in group[1:]:
                other.status, other.reason, other.result = group[0].status, group[0].reason, group[0].result
            write_results(folder, comparison, cells)
            watcher.end(group[0])
            stopped = signals.number(*signals.flags())
            if stopped and (group[0].status == "interrupted" or number < len(waiting)):
                raise Interrupted(stopped, group[0].result.get("steps", 0))
    finally:
        signals.restore()
    return write_results(folder, comparison, cells)


def _take_over(folder: CompareFolder, cells: Sequence[Cell]) -> None:
    """Give cells the results of runs that ended before."""
    for cell in cells:
        if cell.recipe and (found := folder.ended(cell)):
            cell.status, cell.result = found["status"], found
            cell.reason = last_error(folder.said(cell)) if cell.status == "diverged" else ""


def _waiting(cells: Sequence[Cell], seeds: Sequence[int]) -> list[list[Cell]]:
    """Planned cells, those of one address together; the first seed of all first, so that pairs are early complete."""
    groups: dict[str, list[Cell]] = {}
    for seed in seeds:
        for cell in cells:
            if cell.status == "planned" and cell.seed == seed:
                groups.setdefault(cell.address, []).append(cell)
    return list(groups.values())
