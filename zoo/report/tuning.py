"""What choosing a point of the tuning grid cost each variant, and what was chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.comparison.tune import is_edge
from zoo.report.findings import Entry, Findings, TaskFindings
from zoo.report.section import Value


def tuning_columns(task: TaskFindings, findings: Findings) -> dict[str, dict[str, Value]]:
    """Columns of the verdict table by variant; none where nothing was tuned."""
    grid = findings.comparison.get("tune") or {}
    if not grid and not any(entry.tuning for entry in task.entries.values()):
        return {}
    points = {name: _point(entry) for name, entry in task.entries.items()}
    return {
        "tuning runs": {name: len(entry.tuning) for name, entry in task.entries.items()},
        "chosen": {name: _said(point) for name, point in points.items()},
        "at the grid's edge": {name: _edges(point, grid) for name, point in points.items()},
    }


def _point(entry: Entry) -> Mapping[str, Any]:
    return next((cell["point"] for cell in entry.cells if cell.get("point")), {})


def _said(point: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in point.items())


def _edges(point: Mapping[str, Any], grid: Mapping[str, Sequence[Any]]) -> str:
    return ", ".join(key for key, value in point.items() if is_edge(value, grid.get(key, ())))
