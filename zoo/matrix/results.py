"""The matrix as data: shipped as ``matrix.json`` beside a package's components, read, merged, counted, written."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from zoo.component import Component
from zoo.errors import UserError
from zoo.registry import Registry

FILE = "matrix.json"

Status = Literal["tested", "unsupported", "failed", "unknown"]


class Outcome(NamedTuple):
    """How a combination came out; ``reason`` says who refused it, what failed, or where it was tried."""

    status: Status
    reason: str = ""


class Cell(NamedTuple):
    """An attention with a position scheme in a job, which is an architecture with a task."""

    attention: str
    position: str
    job: str


UNKNOWN = Outcome("unknown", "nobody has run it")


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Outcomes by cell, and those of the rows of a covering array, which were trained.

    Attributes:
        sources: hash of each component's file when it was run, by ``kind/name``.
        cells: outcome of each cell.
        rows: outcome of each trained row, by its values in the order of ``factors``.
        factors: what the values of a row are.
    """

    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cells: Mapping[Cell, Outcome] = dataclasses.field(default_factory=dict)
    rows: Mapping[tuple[str, ...], Outcome] = dataclasses.field(default_factory=dict)
    factors: tuple[str, ...] = ("attention", "position", "job", "norm", "feed_forward", "residual")

    def of(self, cell: Cell) -> Outcome:
        """The outcome of a cell, or ``UNKNOWN``."""
        return self.cells.get(cell, UNKNOWN)

    def totals(self, cells: Iterable[Cell]) -> Counter[Status]:
        """How many of some cells came out how."""
        return Counter(self.of(cell).status for cell in cells)

    def merged(self, other: Matrix) -> Matrix:
        """Both; where both know something, the other's."""
        return Matrix({**self.sources, **other.sources}, {**self.cells, **other.cells}, {**self.rows, **other.rows})

    def without_changed(self, now: Mapping[str, str]) -> Matrix:
        """What still holds where components' files have other hashes now than when they were run."""
        changed = {key for key, value in self.sources.items() if now.get(key) != value}

        def holds(pairs: Iterable[tuple[str, str]]) -> bool:
            return not any(f"{kind}/{name}" in changed for kind, name in pairs)

        cells = {cell: outcome for cell, outcome in self.cells.items() if holds(_parts_of(cell))}
        rows = {row: outcome for row, outcome in self.rows.items() if holds(self._parts_of_row(row))}
        return Matrix(now, cells, rows)

    def _parts_of_row(self, row: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        yield from _parts_of(Cell(*row[:3]))
        yield from zip(self.factors[3:], row[3:], strict=True)

    def json(self) -> dict[str, Any]:
        """The file's content: outcomes are listed once, cells hold their numbers."""
        outcomes = list(dict.fromkeys([*self.cells.values(), *self.rows.values()]))
        number = {outcome: index for index, outcome in enumerate(outcomes)}
        jobs = list(dict.fromkeys(cell.job for cell in self.cells))
        table: dict[str, dict[str, list[int | None]]] = {}
        for cell, outcome in self.cells.items():
            line = table.setdefault(cell.attention, {}).setdefault(cell.position, [None] * len(jobs))
            line[jobs.index(cell.job)] = number[outcome]
        return {
            "sources": dict(sorted(self.sources.items())),
            "outcomes": [list(outcome) for outcome in outcomes],
            "jobs": jobs,
            "cells": table,
            "factors": list(self.factors),
            "rows": [[*row, number[outcome]] for row, outcome in self.rows.items()],
        }

    def write(self, file: Path) -> None:
        """Write the file whole or not at all; one attention's position scheme is one line."""
        data = self.json()
        text = json.dumps({**data, "cells": {}, "rows": []}, indent=1)
        lines = [f"  {json.dumps(name)}: {{\n{_lines(table)}\n  }}" for name, table in data["cells"].items()]
        text = text.replace('"cells": {}', '"cells": {\n' + ",\n".join(lines) + "\n }")
        rows = ",\n".join(f"  {json.dumps(row)}" for row in data["rows"])
        text = text.replace('"rows": []', f'"rows": [\n{rows}\n ]')
        unfinished = file.with_name(f"{file.name}.new")
        unfinished.write_text(text + "\n", encoding="utf-8")
        unfinished.replace(file)


def _lines(table: Mapping[str, list[int | None]]) -> str:
    return ",\n".join(f"   {json.dumps(name)}: {json.dumps(line)}" for name, line in table.items())


def _parts_of(cell: Cell) -> Iterator[tuple[str, str]]:
    architecture, _, task = cell.job.partition("/")
    yield from (("attention", cell.attention), ("position", cell.position))
    yield from (("architecture", architecture), ("task", task))


def read(file: Path) -> Matrix:
    """The matrix in a file.

    Raises:
        UserError: it can't be read as one.
    """
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        outcomes = [Outcome(*outcome) for outcome in data["outcomes"]]
        cells = {
            Cell(attention, position, job): outcomes[number]
            for attention, table in data["cells"].items()
            for position, line in table.items()
            for job, number in zip(data["jobs"], line, strict=True)
            if number is not None
        }
        rows = {tuple(row[:-1]): outcomes[row[-1]] for row in data["rows"]}
        return Matrix(data["sources"], cells, rows, tuple(data["factors"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UserError(
            f"{file.name} can't be read as a matrix: {error}",
            where=str(file),
            fix="make it anew: zoo matrix --run FILE",
        ) from error


def shipped(registry: Registry) -> Matrix:
    """What the installed packages ship, merged."""
    folders = {component.file.parents[1] for component in registry.components() if component.file is not None}
    matrix = Matrix()
    for folder in sorted(folders):
        if (folder / FILE).is_file():
            matrix = matrix.merged(read(folder / FILE))
    return matrix


def source_hashes(components: Iterable[Component]) -> dict[str, str]:
    """Hash of each component's file, by ``kind/name``."""
    return {
        component.key: hashlib.sha256(component.file.read_bytes()).hexdigest()[:12]
        for component in components
        if component.file is not None
    }
