"""Beginning with weights that are there: into a new model with them, and what to say of what didn't fit."""

from __future__ import annotations

import hashlib
import math
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.builder import SIZES
from zoo.component import did_you_mean
from zoo.contracts.architecture import Architecture
from zoo.contracts.position import Position
from zoo.contracts.weights import Loaded, Weights, below, model_tensors
from zoo.errors import UserError, counted
from zoo.nn.resizing import resized_positions
from zoo.recipe import Recipe, load_recipe
from zoo.training.checkpoint import model_state, read_checkpoint
from zoo.training.run import RunFolder
from zoo.training.weights import plain_names, read_weights

TENSOR_FILES = (".bin", ".pt", ".pth")
"""Suffixes of files that ``torch.save`` wrote."""

_NESTED = ("state_dict", "model")
_HARMLESS = ("dropout", "drop_path", "kernel", *SIZES)
"""Knobs that may change between a run and one that begins with its weights: they leave the function as it was."""


def start_from(weights: Weights, model: Architecture, recipe: Recipe) -> tuple[dict[str, str], list[str]]:
    """Fill a new model with the weights of its recipe.

    Returns:
        facts for the lock file, and lines for standard error: what was taken and what wasn't.

    Raises:
        UserError: a file that can't be read, or tensors that don't fit. The model is as it was.
    """
    file = weights.file(weights.config.path)
    state = read_state(file)
    _check_skip(weights, model, state, recipe)
    grids = Grids(model, _run_folder(weights))
    loaded = weights.load(model, state, where=str(file), skip=weights.config.skip, resize=grids.resize)
    lines = [*_told(loaded, file), *grids.lines, *_differences(weights, recipe)]
    return {"path": str(file), "sha256": _hash(file)}, lines


class Grids:
    """Makes learned positions of a grid of patches fit another one.

    Args:
        model: what is filled.
        run: the run that the weights belong to, which knows its grid; a foreign one is taken to be square.

    Attributes:
        lines: what was done.
    """

    def __init__(self, model: Architecture, run: RunFolder | None) -> None:
        self.lines: list[str] = []
        self._grid, self._old = model.embedding.grid, None
        schemes = [(name, module) for name, module in model.named_modules() if isinstance(module, Position)]
        self._tables = {f"{name}.table.weight" for name, scheme in schemes if scheme.axes == 1 and scheme.acts("embed")}
        size, patch = run.locked()["sizes"]["image_size"] if run else None, model.embedding.patch_size
        if size and patch:
            self._old = (size[0] // patch[0], size[1] // patch[1])

    def resize(self, name: str, table: Tensor, rows: int) -> Tensor | None:
        """A table for the model's grid; ``None`` for what is no table of positions, or of unknown places."""
        if self._grid is None or name not in self._tables:
            return None
        extra = rows - self._grid[0] * self._grid[1]
        side = math.isqrt(max(0, len(table) - extra))
        old = self._old or (side, side)
        if len(table) != extra + old[0] * old[1]:
            return None
        shown = " to ".join(" x ".join(map(str, grid)) for grid in (old, self._grid))
        self.lines.append(f"  {name} was resized from {shown} patches")
        return resized_positions(table, old, self._grid, extra)


def read_state(file: Path) -> dict[str, Tensor]:
    """Tensors of a file by name, without prefixes of wrappers; code in it is refused.

    Raises:
        UserError: a file of another kind, or one that is damaged or holds objects.
    """
    if file.suffix == ".safetensors":
        return plain_names(read_weights(file)[0])
    if file.suffix == ".ckpt":
        return plain_names(model_state(read_checkpoint(file)["state_dict"]))
    if file.suffix in TENSOR_FILES:
        return plain_names(_saved_by_torch(file))
    raise UserError(
        f"weights in a {file.suffix or 'nameless'} file are of no kind that is known",
        where=str(file),
        fix=f"give a file that ends with .safetensors, .ckpt, {', '.join(TENSOR_FILES)}",
    )


def _saved_by_torch(file: Path) -> Mapping[str, Tensor]:
    try:
        found: Any = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises whatever the damage leads to
        held = isinstance(error, pickle.UnpicklingError)
        reason = "it holds objects, which are never loaded, or is damaged" if held else str(error).split("\n")[0]
        raise UserError(f"the weights can't be read: {reason}", where=str(file)) from error
    for key in _NESTED:
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError("the file holds something else than tensors by name", where=str(file))
    return found


def _check_skip(weights: Weights, model: Architecture, state: Mapping[str, Tensor], recipe: Recipe) -> None:
    """Refuse to skip what is nowhere, which is a name that was misspelt."""
    parts = [name for name, _ in model.named_modules() if name]
    names = [*parts, *model_tensors(model), *map(weights.normalized, state)]
    for part in weights.config.skip:
        if part not in parts and not any(below(name, [part]) for name in names):
            raise UserError(
                f"{part!r} is no part of the model, and begins no name in the file{did_you_mean(part, parts)}",
                where=recipe.where("weights.skip"),
                fix="name a part of the model, or the beginning of names of the file",
            )


def _told(loaded: Loaded, file: Path) -> list[str]:
    total = len(loaded.taken) + len(loaded.fresh)
    return [
        f"weights: {len(loaded.taken)} of {total} tensors of the model are those of {file}",
        *(f"  {line}" for line in counted("begin anew", loaded.fresh)),
        *(f"  {line}" for line in counted("of the file are left over", loaded.unused)),
    ]


def _differences(weights: Weights, recipe: Recipe) -> list[str]:
    """Settings of the run's model that are others now, which shapes needn't show: its weights were made for the old."""
    folder = _run_folder(weights)
    if folder is None:
        return []
    try:
        changes = load_recipe(folder.recipe, registry=recipe.registry).diff(recipe)
    except UserError as error:
        return [f"  the run's recipe can't be read, so nobody knows whether its parts were these: {error.what}"]
    skipped = [f"architecture.{part}" for part in weights.config.skip]
    return [
        f"  warning: the run had {change.path}: {change.old}, this is {change.new}"
        for change in changes
        if below(change.path, ["architecture"])
        and not below(change.path, skipped)
        and change.path.rpartition(".")[2] not in _HARMLESS
        and change.path.split(".")[1] not in SIZES
    ]


def _run_folder(weights: Weights) -> RunFolder | None:
    """The run that weights belong to, if its recipe is there."""
    path = weights.run(weights.config.path)
    folder = None if path is None else RunFolder(path)
    known = folder is not None and folder.recipe.is_file() and folder.lock.is_file()
    return folder if known else None


def _hash(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
