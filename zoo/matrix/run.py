"""Run the cells and rows that a matrix lacks, in processes side by side."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from zoo.component import Component
from zoo.matrix.cells import Laboratory
from zoo.matrix.covering import covering
from zoo.matrix.jobs import all_jobs
from zoo.matrix.results import Cell, Matrix, Outcome, source_hashes
from zoo.registry import Registry

KINDS = ("attention", "position", "norm", "feed_forward", "residual", "architecture", "task")
"""Kinds of component that the matrix is about."""
CHUNK = 24
"""Cells that a process is given at a time."""

Item = TypeVar("Item")
Told = Callable[[int, int], None]
"""Is told how many of how many are done."""


class Axes:
    """The components that there are, and all cells that they make."""

    def __init__(self, registry: Registry) -> None:
        self.components: dict[str, list[Component]] = {
            kind: [part for part in registry.components(kind) if part.status == "ok"] for kind in KINDS
        }
        self.jobs = all_jobs(registry)

    def names(self, kind: str) -> list[str]:
        """Names of a kind."""
        return [component.name for component in self.components[kind]]

    def cells(self) -> list[Cell]:
        """Every attention with every position scheme in every job, one attention's together."""
        return [
            Cell(attention, position, job.name)
            for attention in self.names("attention")
            for position in self.names("position")
            for job in self.jobs
        ]

    def sources(self) -> dict[str, str]:
        """Hashes of all files."""
        return source_hashes(part for parts in self.components.values() for part in parts)


def complete(known: Matrix, axes: Axes, registry: Registry, cache: Path, *, workers: int, told: Told) -> Matrix:
    """The matrix with every cell, and with the rows of a covering array over its tested cells.

    Args:
        known: what needn't be run again, if no component's file has changed since.
        axes: the components.
        registry: where they are found.
        cache: folder of the jobs' data.
        workers: processes.
        told: is told of the progress.
    """
    known = known.without_changed(axes.sources())
    environment = registry.environment()
    cells = axes.cells()
    new = [cell for cell in cells if known.of(cell).status in ("unknown", "failed")]  # perhaps mended elsewhere
    with concurrent.futures.ProcessPoolExecutor(
        workers,
        multiprocessing.get_context("spawn"),  # torch's threads don't survive a fork
        initializer=_set_up,
        initargs=(environment, cache),
    ) as pool:
        found = dict(zip(new, _spread(pool, _cells, new, told), strict=True))
        every = {cell: found.get(cell) or known.cells[cell] for cell in cells}
        rows = _rows(axes, every)
        untrained = [row for row in rows if row not in known.rows]
        trained = dict(zip(untrained, _spread(pool, _trained, untrained, told), strict=True))
    return Matrix(axes.sources(), every, {row: trained.get(row) or known.rows[row] for row in rows})


def _rows(axes: Axes, outcomes: dict[Cell, Outcome]) -> list[tuple[str, ...]]:
    tested = [cell for cell, outcome in outcomes.items() if outcome.status == "tested"]
    factors = [axes.names("attention"), axes.names("position"), [job.name for job in axes.jobs]]
    factors += [axes.names(kind) for kind in ("norm", "feed_forward", "residual")]
    return covering(factors, _spaced(tested), lambda row: True)


def _spaced(cells: Sequence[Cell]) -> list[tuple[str, ...]]:
    """Cells in an order in which neighbours differ in their jobs, so that early rows cover many pairs."""
    turns: dict[str, list[Cell]] = {}
    for cell in cells:
        turns.setdefault(cell.job, []).append(cell)
    longest = max((len(part) for part in turns.values()), default=0)
    return [tuple(part[turn]) for turn in range(longest) for part in turns.values() if turn < len(part)]


def _spread(
    pool: concurrent.futures.Executor,
    work: Callable[[Sequence[Item]], list[Outcome]],
    items: Sequence[Item],
    told: Told,
) -> list[Outcome]:
    chunks = [items[start : start + CHUNK] for start in range(0, len(items), CHUNK)]
    results: list[Outcome] = []
    told(0, len(items))
    for outcomes in pool.map(work, chunks):
        results += outcomes
        told(len(results), len(items))
    return results


_here: list[Laboratory] = []


def _set_up(environment: dict[str, str], cache: Path) -> None:
    """Once in each process: its own registry and data, one thread."""
    os.environ.update(environment)
    torch.set_num_threads(1)
    registry = Registry.discover()
    registry.load_plugins()
    _here.append(Laboratory(registry, all_jobs(registry), cache))


def _cells(cells: Sequence[Cell]) -> list[Outcome]:
    return [_here[0].cell(cell) for cell in cells]


def _trained(rows: Sequence[tuple[str, ...]]) -> list[Outcome]:
    return [_here[0].row(dict(zip(Matrix().factors, row, strict=True))) for row in rows]
