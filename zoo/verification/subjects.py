"""What can be held against each other: a run, a cell of a comparison, or a recipe that nobody has run yet."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zoo.component import did_you_mean
from zoo.errors import UserError
from zoo.recipe import Recipe, load_recipe
from zoo.recipe.source import read_file

if TYPE_CHECKING:
    from zoo.training.run import RunFolder

COMPARISON = "comparison.yaml"
"""File by which the folder of a comparison is known."""

CELLS = "cells"
"""Folder of its runs."""

_SHOWN = 8


@dataclasses.dataclass(frozen=True)
class Subject:
    """One side of a difference.

    Attributes:
        source: what the user named it.
        kind: whether it has been run.
        recipe: of a run, as composed.
        lock: code, versions, seed and data that a run was made with; for a recipe what it would be made with now,
            its data unread.
        run: the folder; ``None`` for a recipe.
    """

    source: str
    kind: Literal["run", "recipe"]
    recipe: Recipe
    lock: Mapping[str, Any]
    run: Path | None = None

    @property
    def folder(self) -> RunFolder:
        """The run folder, whose module needs torch."""
        from zoo.training.run import RunFolder

        assert self.run is not None
        return RunFolder(self.run)

    def json(self) -> dict[str, Any]:
        """Plain values."""
        return {"source": self.source, "kind": self.kind, "run": self.run and str(self.run)}


def find_subject(source: str) -> Subject:
    """A run by its folder, a cell as ``FOLDER:VARIANT/TASK/SEED``, or a recipe or preset by path or name.

    Raises:
        UserError: there is no such thing, a cell that was never run, a comparison without the name of a cell.
    """
    path = Path(source)
    if (path / COMPARISON).is_file():
        raise UserError(
            f"{source} is a comparison of several runs",
            fix=f"name one of them: {source}:CELL, with one of {_listed(list(_cells(path)))}",
        )
    if (path / "recipe.yaml").is_file() and (path / "recipe.lock.yaml").is_file():
        return _run(source, path)
    if cell := _split_cell(source):
        return _run(source, _cell_folder(*cell))
    recipe = load_recipe(source)
    return Subject(source, "recipe", recipe, recipe.lock())


def _run(source: str, path: Path) -> Subject:
    recipe = load_recipe(path)
    return Subject(source, "run", recipe, read_file(path / "recipe.lock.yaml", "recipe").plain(), path.absolute())


def _split_cell(source: str) -> tuple[Path, str] | None:
    """Folder and cell of ``FOLDER:CELL``, where that folder holds a comparison; either may have colons of its own."""
    for place, letter in enumerate(source):
        if letter == ":" and (Path(source[:place]) / COMPARISON).is_file():
            return Path(source[:place]), source[place + 1 :]
    return None


def _cell_folder(folder: Path, name: str) -> Path:
    cells = _cells(folder)
    if name not in cells:
        raise UserError(
            f"the comparison has no cell {name!r}{did_you_mean(name, cells)}",
            where=str(folder),
            fix=f"choose one of {_listed(list(cells))}",
        )
    cell = cells[name]
    if not cell.get("run"):
        reason = f": {cell['reason']}" if cell.get("reason") else ""
        raise UserError(f"cell {name} has no run, it is {cell['status']}{reason}", where=str(folder))
    path = Path(cell["run"])
    places = [path, *_since_moved(folder, path)]
    found = next((place for place in places if (place / "recipe.lock.yaml").is_file()), None)
    if found is None:
        raise UserError(f"the run of cell {name} isn't there", where=str(path), fix="run the comparison again")
    return found


def _since_moved(folder: Path, run: Path) -> list[Path]:
    """Where a run is, if the comparison has been moved since its results were written."""
    parts = run.parts
    return [folder.joinpath(*parts[place:]) for place, part in enumerate(parts) if part == CELLS]


def _cells(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Records of a comparison's cells, as ``VARIANT/TASK/SEED``, with what tells apart those of a tuning grid."""
    file = folder / "results.json"
    try:
        records = json.loads(file.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"the results of the comparison can't be read: {error}",
            where=str(file),
            fix=f"run it, or name a folder in {folder / CELLS}",
        ) from error
    return {_name(record): record for record in records}


def _name(record: Mapping[str, Any]) -> str:
    place = f"{record['variant']}/{record['task']}/{record['seed']}"
    if record.get("phase") != "tune":
        return place
    return place + "".join(f"/{key}={value}" for key, value in record["point"].items())


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
