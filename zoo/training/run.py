"""The run folder: claimed by one run, and all that a later command needs to know of it."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from torch import Tensor

from zoo.builder import build_model
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Description
from zoo.contracts.tokenizer import Tokenizer
from zoo.errors import UserError
from zoo.recipe import Comparison, Recipe, load_recipe
from zoo.recipe.sections import plain
from zoo.recipe.source import read_file, write_text
from zoo.recipe.training import RUNS
from zoo.registry import Registry
from zoo.training.checkpoint import BEST, KEY, Checkpoints, model_state, read_checkpoint
from zoo.training.files import write_bytes, write_json
from zoo.training.weights import load_weights, read_weights

if TYPE_CHECKING:
    from zoo.training.job import Job

logger = logging.getLogger(__name__)


class RunFolder:
    """Names and contents of one run's files.

    Attributes:
        path: absolute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.recipe = self.path / "recipe.yaml"
        self.lock = self.path / "recipe.lock.yaml"
        self.metrics = self.path / "metrics.csv"
        self.result = self.path / "result.json"
        self.log = self.path / "log.txt"
        self.tokenizer = self.path / "tokenizer.json"
        self.labels = self.path / "labels.json"
        self.data = self.path / "data.json"
        self.checkpoints = self.path / "checkpoints"
        self.weights = self.path / "model.safetensors"
        self._held: int | None = None

    def hold(self) -> None:
        """Keep other processes from training in this folder; ends with this process at the latest.

        Raises:
            UserError: another one does.
        """
        self._held = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise UserError("another process is training in this folder", where=str(self.path)) from None

    def release(self) -> None:
        """Let others train here."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def remove_if_empty(self) -> None:
        """Take the folder away again if nothing is in it."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def begin(self, job: Job) -> None:
        """Write what stays the same during a run: recipe, lock, tokenizer, classes, and what its data measured."""
        write_bytes(self.recipe, job.recipe.to_yaml().encode())
        write_bytes(self.lock, write_text(_lock(job)).encode())
        tokenizer = job.data.tokenizer()
        if tokenizer is not None and "tokenizer" in job.data.slots:
            name = job.recipe.tree["data"]["tokenizer"]["name"]
            config = plain(dataclasses.asdict(tokenizer.config))
            write_json(self.tokenizer, {"name": name, "config": config, "state": tokenizer.state()})
        if (labels := job.data.labels()) is not None:
            write_json(self.labels, list(labels))
        if state := job.data.state():
            write_json(self.data, dict(state))

    def changed_components(self, recipe: Recipe) -> list[str]:
        """Components of a recipe whose source isn't what the run began with, as ``kind/name``."""
        now, then = recipe.lock()["components"], self.locked()["components"]
        return [key for key in now if key in then and now[key]["sha256"] != then[key]["sha256"]]

    def locked(self) -> dict[str, Any]:
        """What recipe.lock.yaml says."""
        return read_file(self.lock, "recipe").plain()


def _lock(job: Job) -> dict[str, Any]:
    given = {name: size for name, size in vars(job.model.config.sizes()).items() if size is not None}
    sizes = vars(job.task.describe()) | given
    sizes = {name: list(size) if isinstance(size, tuple) else size for name, size in sizes.items()}
    lock = {**job.recipe.lock(), "data": {"sha256": job.data.fingerprint()}, "sizes": sizes}
    return {**lock, "weights": job.origin} if job.origin else lock


def claim_run(recipe: Recipe | Comparison, run: Path | None) -> RunFolder:
    """An empty folder that belongs to nobody else: the one asked for, or the first free runs/RECIPE-N.

    Raises:
        UserError: the folder holds something, or can't be made.
    """
    try:
        folder = RunFolder(_numbered(recipe.name) if run is None else run)
        folder.path.mkdir(parents=True, exist_ok=True)
        if not os.access(folder.path, os.W_OK):
            raise PermissionError(None, "Permission denied")
        occupied = any(folder.path.iterdir())
    except OSError as error:
        raise UserError(
            f"the run folder can't be made: {error.strerror}",
            where=str(run or RUNS),
            fix="choose another: --run DIR",
        ) from error
    if occupied:
        fix = "choose another folder"
        if folder.recipe.exists():
            fix += f", or continue the run in it: zoo train {folder.path} --resume"
        raise UserError(f"{folder.path} isn't empty", where="--run", fix=fix)
    folder.hold()
    return folder


def _numbered(name: str) -> Path:
    """A folder that this call has made; two processes never get the same one."""
    RUNS.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = RUNS / f"{name}-{number}"
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path


class LoadedRun(NamedTuple):
    """A trained model with what it takes to use it."""

    path: Path
    """The run folder."""
    recipe: Recipe
    """As the run used it, with the overrides."""
    model: Architecture
    """In evaluation mode, on the CPU."""
    tokenizer: Tokenizer | None
    """Fitted; ``None`` where the data has none."""
    step: int
    """Optimizer steps behind the weights."""
    labels: list[str] | None = None
    """Names of the classes; ``None`` where there are none."""
    state: Mapping[str, Any] = MappingProxyType({})
    """What the data measured, for inputs of one's own."""


def load_run(
    path: str | Path,
    overrides: tuple[str, ...] = (),
    *,
    step: int | Literal["best"] | None = None,
    registry: Registry | None = None,
) -> LoadedRun:
    """The model of a run; its data may be gone.

    Args:
        path: a run folder.
        overrides: changes to its recipe, ``key.path=value``.
        step: weights of this checkpoint or of the best one; by default those of the last step.
        registry: where components are found.

    Raises:
        UserError: no run there, no such weights, or weights that don't fit the recipe.
    """
    folder = RunFolder(Path(path))
    if not folder.recipe.is_file() or not folder.lock.is_file():
        raise UserError(f"{path} is no run folder: it has no recipe.yaml and recipe.lock.yaml", fix="give a run folder")
    recipe = load_recipe(folder.recipe, overrides, registry=registry)
    for name in folder.changed_components(recipe):
        logger.warning("%s isn't what the run was trained with: its source has changed", name)
    model = build_model(recipe, _description(folder.locked()["sizes"]))
    source, state, at = _weights(folder, step)
    load_weights(model, state, str(source))
    tokenizer, labels = read_tokenizer(folder, recipe), _read_json(folder.labels)
    return LoadedRun(folder.path, recipe, model.eval(), tokenizer, at, labels, _read_json(folder.data) or {})


def _description(sizes: dict[str, Any]) -> Description:
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in sizes.items()}
    return Description(**values)


def _weights(folder: RunFolder, step: int | Literal["best"] | None) -> tuple[Path, dict[str, Tensor], int]:
    """Where the weights of a step are, the weights, and the number of the step."""
    if step is None and folder.weights.is_file():
        state, facts = read_weights(folder.weights)
        return folder.weights, state, int(facts["step"])
    source = _checkpoint(folder, step)
    checkpoint = read_checkpoint(source)
    return source, model_state(checkpoint["state_dict"]), int(checkpoint[KEY]["step"])


def _checkpoint(folder: RunFolder, step: int | Literal["best"] | None) -> Path:
    checkpoints = Checkpoints(folder.checkpoints, keep=0)
    if step is None:
        found = checkpoints.newest()
        if found is None:
            raise UserError("the run has no weights yet", where=str(folder.path), fix="wait for its first checkpoint")
        return found[0]
    path = folder.checkpoints / BEST if step == "best" else checkpoints.path(step)
    if not path.is_file():
        steps = ", ".join(map(str, checkpoints.steps())) or "none"
        raise UserError(f"there is no {path.name}", where=str(folder.checkpoints), fix=f"steps on disk: {steps}")
    return path


def read_tokenizer(folder: RunFolder, recipe: Recipe) -> Tokenizer | None:
    """The tokenizer that a run's model was trained with; ``None`` where its data has none.

    Raises:
        UserError: a damaged file.
    """
    saved = _read_json(folder.tokenizer)
    if saved is None:
        return None
    try:
        part = recipe.registry.find("tokenizer", saved["name"], where=str(folder.tokenizer)).load()
        tokenizer: Tokenizer = part(part.Config(**saved["config"]))
        tokenizer.restore(saved["state"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"the run's tokenizer can't be read: {error}", where=str(folder.tokenizer), fix="restore the file"
        ) from error
    return tokenizer


def _read_json(path: Path) -> Any:
    """What a file of a run holds; ``None`` where the run has no such file.

    Raises:
        UserError: it isn't JSON.
    """
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path.name} can't be read: {error}", where=str(path), fix="restore the file") from error
