"""What a comparison leaves behind: results.csv and results.parquet, costs.csv, and results.json.

The first two hold metrics and figures that follow from recipes, in an order that doesn't depend on how the comparison
was written: no times, no paths, every digit. Equal runs give equal bytes. What depends on the machine is in costs.csv.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.comparison.cells import Cell
from zoo.comparison.costs import COUNTED, UNKNOWN, costs_csv, counted_by_place, told
from zoo.comparison.folder import CompareFolder
from zoo.comparison.rows import csv_text, ordered, place, places
from zoo.comparison.tune import choices
from zoo.comparison.verdicts import verdicts
from zoo.recipe import Comparison
from zoo.training.files import write_bytes, write_json

COSTS = ("parameters", "steps", "tokens", "wall_s")
"""What result.json says of a run beside its metrics."""
MEASURED_ON = ("val_", "test_")
"""What the names of metrics begin with."""


def write_results(folder: CompareFolder, comparison: Comparison, cells: Sequence[Cell]) -> dict[str, Any]:
    """Write all four files; the document that results.json holds."""
    found = document(folder.path, comparison, cells)
    columns, rows = table(cells)
    write_bytes(folder.table, csv_text(columns, rows).encode())
    write_bytes(folder.table.with_suffix(".parquet"), parquet(columns, rows))
    write_bytes(folder.path / "costs.csv", costs_csv(cells).encode())
    write_json(folder.document, found)
    return found


def document(folder: Path | None, comparison: Comparison, cells: Sequence[Cell]) -> dict[str, Any]:
    """What ``zoo compare --json`` prints; ``folder`` is ``None`` where nothing has been written."""
    runs = None if folder is None else CompareFolder(folder)
    return {
        "folder": folder and str(folder),
        "cells": [_record(runs, cell) for cell in cells],
        "verdicts": verdicts(comparison, cells),
        "tuning": [
            {"task": task, "variant": variant, **dataclasses.asdict(choice)}
            for (variant, task), choice in choices(comparison, cells).items()
        ],
    }


def _record(runs: CompareFolder | None, cell: Cell) -> dict[str, Any]:
    """A cell as plain values; a hundred thousand of them take a second."""
    has_run = cell.address and cell.status not in ("planned", "invalid")
    return {
        "variant": cell.variant,
        "task": cell.task,
        "seed": cell.seed,
        "phase": cell.phase,
        "point": dict(cell.point),
        "status": cell.status,
        "reason": cell.reason or None,
        "metrics": cell.metrics,
        "costs": {**{name: cell.result.get(name) for name in COSTS}, **cell.costs},
        "run": str(runs.costs_file(cell.address).parent) if runs and has_run else None,
    }


def table(cells: Sequence[Cell]) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns and rows of results.csv: where a cell stands, what follows from its recipe, and its metrics by name."""
    cells = ordered(cells)
    columns, rows = places(cells)
    metrics, counted = _metrics(cells), counted_by_place(cells)
    for cell, row in zip(cells, rows, strict=True):
        row |= {"steps": cell.result.get("steps"), "tokens": cell.result.get("tokens")}
        row |= told(counted.get(place(cell), {}))
        if row.get("parameters") is None:
            row["parameters"] = cell.result.get("parameters")
        row |= {name: cell.metrics.get(name) for name in metrics}
    return [*columns, "steps", "tokens", *COUNTED, *metrics], rows


def _metrics(cells: Sequence[Cell]) -> list[str]:
    """Names of all metrics that the tasks declare or that a run has measured, slices too, in alphabetical order."""
    recipes = {cell.task: cell.base for cell in cells if cell.base}
    declared = {f"val_{name}" for recipe in recipes.values() for name in recipe.component("task").load().metrics}
    measured = {name for cell in cells for name in cell.metrics if name.startswith(MEASURED_ON)}
    return sorted(declared | measured)


def parquet(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The same table as Parquet: texts, whole numbers, and float64 for all that is counted or measured."""
    import pyarrow
    from pyarrow import parquet as files

    arrays = {name: _array(name, [_plain(row.get(name)) for row in rows]) for name in columns}
    buffer = io.BytesIO()
    files.write_table(pyarrow.table(arrays), buffer)
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    return None if value == UNKNOWN else value


def _array(name: str, values: list[Any]) -> Any:
    import pyarrow

    if name in ("variant", "task", "phase", "status"):
        return pyarrow.array(values, pyarrow.string())
    if name in ("seed", "steps", "tokens"):
        return pyarrow.array(values, pyarrow.int64())
    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        return pyarrow.array([None if value is None else float(value) for value in values], pyarrow.float64())
    return pyarrow.array([None if value is None else json.dumps(value, sort_keys=True) for value in values])
