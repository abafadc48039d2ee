"""What a run is made of: its recipe, prepared data, task and model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zoo.builder import build_data, build_model, build_task, build_weights, check_buildable
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Data, Description, Draw
from zoo.contracts.task import Task
from zoo.contracts.tokenizer import Tokenizer
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.training.run import LoadedRun, RunFolder, read_tokenizer

CACHE = "ZOO_CACHE"
"""Environment variable with the folder of token caches and downloads."""


class Job(NamedTuple):
    """A recipe and all that was built from it."""

    recipe: Recipe
    data: Data
    task: Task
    model: Architecture
    origin: Mapping[str, str] | None = None
    """File and hash of the weights that the model begins with, for the lock file."""


def cache_folder() -> Path:
    """Where data sets keep what they made: ``$ZOO_CACHE``, else ``transformer-zoo`` in the user's cache folder."""
    if chosen := os.environ.get(CACHE):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transformer-zoo"


def build_job(recipe: Recipe, run: RunFolder | None = None) -> Job:
    """Prepare the data and build the task and the model with its initial values.

    Args:
        recipe: what to build.
        run: whose tokenizer is taken over, see ``prepare_task``; its tables of tokens and positions stay whole too.

    Raises:
        UserError: data that isn't there or too short, parts that don't fit each other.
    """
    check_buildable(recipe)
    task = prepare_task(recipe, run)
    sizes = _grown(task.describe(), run or _origin(recipe))
    return Job(recipe, task.data, task, build_model(recipe, sizes))


def prepare_task(recipe: Recipe, run: RunFolder | None = None) -> Task:
    """The task of a recipe over its data, which is prepared and checked on the way.

    Args:
        recipe: what to build.
        run: whose tokenizer the data's takes over; by default the one whose weights the recipe starts from, if any.

    Raises:
        UserError: data that isn't there or too short, or that hasn't what the task reads.
    """
    data = build_data(recipe, cache_folder())
    if run := run or _origin(recipe):
        take_over(data, read_tokenizer(run, recipe), recipe)
    return _prepared(recipe, data)


def _origin(recipe: Recipe) -> RunFolder | None:
    """The run that a recipe's weights belong to."""
    weights = build_weights(recipe)
    run = weights and weights.run(weights.config.path)
    folder = RunFolder(run) if run else None
    return folder if folder and folder.lock.is_file() else None


def _grown(description: Description, run: RunFolder | None) -> Description:
    """Sizes of the data, or of the run that a model begins from where its tables are larger."""
    known = run.locked()["sizes"] if run else {}
    said = {name: (getattr(description, name), known.get(name)) for name in ("vocab_size", "max_length")}
    return dataclasses.replace(description, **{name: max(pair) for name, pair in said.items() if None not in pair})


def build_job_for(run: LoadedRun) -> Job:
    """The same over a run's model, with the tokenizer that it was trained with, and inputs as it has seen them.

    Raises:
        UserError: as ``build_job``, or a recipe with another tokenizer or other classes.
    """
    data = restored_data(run)
    job = Job(run.recipe, data, _prepared(run.recipe, data), run.model)
    labels = data.labels()
    if run.labels is not None and labels is not None and list(labels) != run.labels:
        others = sorted(set(labels) ^ set(run.labels))
        raise UserError(
            f"the classes of the data aren't those of the run: {', '.join(others[:5]) or 'another order'}",
            where=run.recipe.where("data"),
            fix="measure it on data with the same classes",
        )
    return job


def restored_data(run: LoadedRun) -> Data:
    """The data set of a run, not prepared, that shows inputs as the run's model has seen them.

    Raises:
        UserError: a recipe with another tokenizer.
    """
    data = build_data(run.recipe, cache_folder())
    take_over(data, run.tokenizer, run.recipe)
    if run.state:
        data.restore(run.state)
    return data


def take_over(data: Data, tokenizer: Tokenizer | None, recipe: Recipe) -> None:
    """Give the data's tokenizer what one has learned that a model was trained with.

    Raises:
        UserError: it is of another kind.
    """
    fresh = data.tokenizer()
    if fresh is not None and tokenizer is not None:
        _restore(fresh, tokenizer, recipe)


def _restore(fresh: Tokenizer, trained: Tokenizer, recipe: Recipe) -> None:
    """Give a recipe's tokenizer what another one has learned, which may be of another kind."""
    try:
        fresh.restore(trained.state())
    except UserError as error:
        raise UserError(
            f"tokenizer {recipe.component('data.tokenizer').name} can't take over from the one that the model was "
            f"trained with: {error.what}",
            where=recipe.where("data.tokenizer"),
            fix="leave data.tokenizer as the run has it: the model knows only its ids",
        ) from error


def _prepared(recipe: Recipe, data: Data) -> Task:
    data.prepare()
    task = build_task(recipe, data)
    _check_data(recipe, data, task)
    return task


def _check_data(recipe: Recipe, data: Data, task: Task) -> None:
    rows = data.config.batch_size
    if rows < 1:
        raise UserError(f"data.batch_size is {rows}", where=recipe.where("data.batch_size"), fix="give at least 1 row")
    if not data.size("train"):
        raise UserError("the train part has no sample, so there is no batch", where=recipe.where("data"))
    first = Draw(np.zeros(1, np.int64), np.zeros(1, np.int64), recipe.seed)
    if missing := task.keys - data.batch(first, "train").keys():
        raise UserError(
            f"task {recipe.component('task').name} reads {', '.join(sorted(missing))} of a batch; "
            f"data {recipe.component('data').name} has none",
            where=recipe.where("task"),
            fix="choose another task, or other data",
        )
