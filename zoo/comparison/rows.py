"""Tables of cells: the same order and the same first columns in each, and one way to write a value."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zoo.comparison.cells import Cell

Row = Mapping[str, Any]


def ordered(cells: Iterable[Cell]) -> list[Cell]:
    """Cells by variant, task and seed, tuning before what is reported: no table depends on how a recipe was written."""
    return sorted(cells, key=lambda cell: (cell.variant, cell.task, cell.phase == "report", _point(cell), cell.seed))


def places(cells: Sequence[Cell]) -> tuple[list[str], list[dict[str, Any]]]:
    """Columns that say where a cell stands, and their values for each: with its phase and its point where there is
    tuning."""
    tuned = sorted({key for cell in cells for key in cell.point})
    is_tuned = bool(tuned) or any(cell.phase == "tune" for cell in cells)
    columns = ["variant", "task", "seed", *(["phase", *tuned] if is_tuned else []), "status"]
    rows = []
    for cell in cells:
        row = {"task": cell.task, "variant": cell.variant, "seed": cell.seed, "status": cell.status}
        if is_tuned:
            row |= {"phase": cell.phase, **cell.point}
        rows.append(row)
    return columns, rows


def csv_text(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """The rows as CSV; floats in as many digits as tell them apart, nothing where there is nothing."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([[_written(row.get(name)) for name in columns] for row in rows])
    return text.getvalue()


def _written(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list | bool) else value


def place(cell: Cell) -> tuple[str, str, str]:
    """What cells that differ in their seed alone share."""
    return cell.variant, cell.task, _point(cell)


def _point(cell: Cell) -> str:
    return json.dumps(dict(cell.point), sort_keys=True, default=str) if cell.point else ""
