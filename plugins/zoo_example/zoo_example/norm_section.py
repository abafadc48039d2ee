"""A section for reports of comparisons: how large the weights of each variant are when its runs end."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from zoo.report.plain import short_names
from zoo.report.runs import run_folder
from zoo.report.section import Plot, Section, Table

COLUMNS = ("variant", "task", "norm of all weights", "runs")


def norm_sections(document: Mapping[str, Any], folder: Path) -> list[Section]:
    """The section; none where no run has a ``weight_norms.csv``."""
    norms: dict[tuple[str, str], list[float]] = {}
    for cell in document["cells"]:
        run = run_folder(folder, cell) if cell["status"] == "completed" else None
        file = run / "weight_norms.csv" if run else None
        if file and file.is_file() and (norm := last_norm(file)) is not None:
            norms.setdefault((cell["variant"], cell["task"]), []).append(norm)
    rows = [(*place, statistics.fmean(found), len(found)) for place, found in norms.items()]
    if not rows:
        return []
    table = Table(COLUMNS, rows)
    text = "; ".join(f"{variant} on {task}: {norm:.4g}" for variant, task, norm, _ in rows)
    return [Section("Weight norms", [Plot(_figure(rows), "Norm of all weights after the last step", text, table)])]


def last_norm(file: Path) -> float | None:
    """The 2-norm of all parameters together after the last recorded step; ``None`` where none is recorded."""
    with file.open(newline="") as stream:
        rows = [(int(row["step"]), float(row["norm"])) for row in csv.DictReader(stream)]
    last = max((step for step, _ in rows), default=None)
    return None if last is None else math.hypot(*(norm for step, norm in rows if step == last))


def _figure(rows: Sequence[tuple[str, str, float, int]]) -> Figure:
    figure = Figure(figsize=(7, 0.8 + 0.25 * len(rows)), layout="constrained")
    axes = figure.subplots()
    labels = short_names(f"{variant}, {task}" for variant, task, _, _ in rows)
    axes.barh(range(len(rows)), [norm for _, _, norm, _ in rows], color="#0072B2")
    axes.set_yticks(range(len(rows)), list(labels.values()))
    axes.invert_yaxis()
    axes.set_xlabel("norm of all weights")
    return figure
