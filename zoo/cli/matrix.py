"""``zoo matrix``: which combinations of parts work, and who says why the others don't."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zoo.cli import options, output

if TYPE_CHECKING:
    from zoo.matrix.results import Matrix
    from zoo.matrix.run import Axes
    from zoo.registry import Registry


@click.command("matrix")
@click.argument("name", required=False)
@click.option("--run", "file", metavar="FILE", help="Run what isn't known, and write all of it to FILE.")
@click.option("--workers", type=click.IntRange(1), help="Processes of --run; by default one for each core.")
@options.plugins
@options.as_json
def command(name: str | None, file: str | None, workers: int | None, plugins: tuple[str, ...], as_json: bool) -> int:
    """Show which parts work together.

    Every attention with every position scheme in every architecture and task: tested, declared unsupported and
    why, or unknown. NAME is an attention or a position scheme, whose combinations are then shown one by one.
    """
    from zoo.errors import UserError
    from zoo.registry import Registry

    if workers is not None and file is None:
        raise UserError("--workers is for --run", fix="leave it out, or say --run FILE")
    registry = Registry.discover(plugins)
    with output.stdout_kept_for_json(as_json):
        from zoo.matrix.results import shipped
        from zoo.matrix.run import Axes

        matrix, axes = shipped(registry), Axes(registry)
        if name is not None:
            _refuse_unknown(name, axes)
        if file is not None:
            matrix = _run(Path(file), matrix, axes, registry, workers or os.cpu_count() or 1)
    if as_json:
        output.print_json(_document(matrix, axes))
    else:
        click.echo(_one(name, matrix, axes) if name else _all(matrix, axes))
    return 1 if matrix.totals(axes.cells())["failed"] else 0


def _refuse_unknown(name: str, axes: Axes) -> None:
    from zoo.component import did_you_mean
    from zoo.errors import UserError

    names = [*axes.names("attention"), *axes.names("position")]
    if name not in names:
        raise UserError(
            f"{name!r} is no attention and no position scheme{did_you_mean(name, names)}",
            fix="zoo list attention, zoo list position",
        )


def _run(file: Path, matrix: Matrix, axes: Axes, registry: Registry, workers: int) -> Matrix:
    from zoo.errors import UserError
    from zoo.matrix.results import read
    from zoo.matrix.run import complete
    from zoo.training.job import cache_folder

    if not file.absolute().parent.is_dir():
        raise UserError("there is no such folder", where=str(file.absolute().parent), fix="make it, or name another")
    if file.is_file():
        matrix = matrix.merged(read(file))

    def told(done: int, total: int) -> None:
        click.echo(f"\r{done:,} of {total:,} ", nl=done == total, err=True)

    matrix = complete(matrix, axes, registry, cache_folder(), workers=workers, told=told)
    matrix.write(file)
    return matrix


def _all(matrix: Matrix, axes: Axes) -> str:
    """A line for each attention: how many position schemes were tested in each job that takes any."""
    jobs = [job.name for job in axes.jobs if job.refusal is None]
    schemes = axes.names("position")
    rows = [("", *(f"{index:>2}" for index in range(1, len(jobs) + 1)))]
    rows += [(attention, *_counts(matrix, attention, schemes, jobs)) for attention in axes.names("attention")]
    totals = matrix.totals(axes.cells())
    said = ", ".join(f"{totals[status]:,} {status}" for status in ("tested", "unsupported", "failed", "unknown"))
    return "\n".join(
        [
            *(f"{index:>2} {job}" for index, job in enumerate(jobs, 1)),
            "",
            f"Of {len(schemes)} position schemes, tested with each attention (! some failed, ? some unknown):",
            output.table(rows, right=True),
            "",
            f"{said}; zoo matrix NAME says why",
        ]
    )


def _counts(matrix: Matrix, attention: str, schemes: list[str], jobs: list[str]) -> Iterator[str]:
    from zoo.matrix.results import Cell

    for job in jobs:
        totals = matrix.totals(Cell(attention, scheme, job) for scheme in schemes)
        mark = "!" if totals["failed"] else "?" if totals["unknown"] else ""
        yield f"{mark}{totals['tested']}".rjust(2)


def _one(name: str, matrix: Matrix, axes: Axes) -> str:
    """Every cell of one attention or position scheme."""
    rows = []
    for cell in axes.cells():
        if name in (cell.attention, cell.position):
            other = cell.attention if cell.position == name else cell.position
            rows.append((other, cell.job, *matrix.of(cell)))
    return output.table(rows, width=output.terminal_width())


def _document(matrix: Matrix, axes: Axes) -> dict[str, object]:
    cells = axes.cells()
    return {
        "totals": dict(matrix.totals(cells)),
        "cells": [
            {**cell._asdict(), "status": matrix.of(cell).status, "reason": matrix.of(cell).reason} for cell in cells
        ],
        "rows": [
            {**dict(zip(matrix.factors, row, strict=True)), "status": outcome.status, "reason": outcome.reason}
            for row, outcome in matrix.rows.items()
        ],
    }
