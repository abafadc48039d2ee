"""What a comparison leaves behind: results.csv, a row for each cell, and results.json."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.comparison.cells import Cell
from zoo.comparison.folder import CompareFolder
from zoo.comparison.verdicts import verdicts
from zoo.recipe import Comparison
from zoo.training.files import write_bytes, write_json

COSTS = ("parameters", "steps", "tokens", "wall_s")


def write_results(folder: CompareFolder, comparison: Comparison, cells: Sequence[Cell]) -> dict[str, Any]:
    """Write both files; the document that results.json holds."""
    found = document(folder.path, comparison, cells)
    write_bytes(folder.table, csv_text(cells).encode())
    write_json(folder.document, found)
    return found


def document(folder: Path | None, comparison: Comparison, cells: Sequence[Cell]) -> dict[str, Any]:
    """What ``zoo compare --json`` prints; ``folder`` is ``None`` where nothing has been written."""
    return {
        "folder": folder and str(folder),
        "cells": [_record(folder, cell) for cell in cells],
        "verdicts": verdicts(comparison, cells),
    }


def _record(folder: Path | None, cell: Cell) -> dict[str, Any]:
    has_run = folder is not None and cell.address and cell.status not in ("planned", "invalid")
    return {
        "variant": cell.variant,
        "task": cell.task,
        "seed": cell.seed,
        "status": cell.status,
        "reason": cell.reason or None,
        "metrics": cell.metrics,
        "costs": {name: cell.result.get(name) for name in COSTS},
        "run": str(CompareFolder(folder).run(cell.address).path) if folder and has_run else None,
    }


def csv_text(cells: Sequence[Cell]) -> str:
    """The table; equal runs give equal bytes, so it holds neither times nor paths."""
    metrics = _columns(cells)
    text = io.StringIO()
    header = ["variant", "task", "seed", "status", "parameters", "steps", *metrics]
    writer = csv.DictWriter(text, header, lineterminator="\n")
    writer.writeheader()
    for cell in cells:
        place = {"variant": cell.variant, "task": cell.task, "seed": cell.seed, "status": cell.status}
        costs = {name: cell.result.get(name) for name in ("parameters", "steps")}
        writer.writerow({**place, **costs, **{name: cell.metrics.get(name) for name in metrics}})
    return text.getvalue()


def _columns(cells: Sequence[Cell]) -> list[str]:
    """``val_*`` of every metric that the tasks declare, in their order, then of those that runs had beside them."""
    recipes = {cell.task: cell.recipe for cell in cells if cell.recipe}
    declared = [f"val_{name}" for recipe in recipes.values() for name in recipe.component("task").load().metrics]
    measured = sorted({name for cell in cells for name in cell.metrics if name.startswith("val_")})
    return list(dict.fromkeys([*declared, *measured]))
