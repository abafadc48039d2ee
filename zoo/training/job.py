"""What a run is made of: its recipe, prepared data, task and model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zoo.builder import build_data, build_model, build_task, check_buildable
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Data, Draw
from zoo.contracts.task import Task
from zoo.contracts.tokenizer import Tokenizer
from zoo.errors import UserError
from zoo.recipe import Recipe

CACHE = "ZOO_CACHE"
"""Environment variable with the folder of token caches and downloads."""


class Job(NamedTuple):
    """A recipe and all that was built from it."""

    recipe: Recipe
    data: Data
    task: Task
    model: Architecture


def cache_folder() -> Path:
    """Where data sets keep what they made: ``$ZOO_CACHE``, else ``transformer-zoo`` in the user's cache folder."""
    if chosen := os.environ.get(CACHE):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transformer-zoo"


def build_job(recipe: Recipe) -> Job:
    """Prepare the data and build the task and the model with its initial values.

    Raises:
        UserError: data that isn't there or too short, parts that don't fit each other.
    """
    check_buildable(recipe)
    task = prepare_task(recipe)
    return Job(recipe, task.data, task, build_model(recipe, task.describe()))


def prepare_task(recipe: Recipe) -> Task:
    """The task of a recipe over its data, which is prepared and checked on the way.

    Raises:
        UserError: data that isn't there or too short, or that hasn't what the task reads.
    """
    return _prepared(recipe, build_data(recipe, cache_folder()))


def build_job_for(recipe: Recipe, model: Architecture, tokenizer: Tokenizer | None) -> Job:
    """The same over a model that is there, with the tokenizer that it was trained with.

    Raises:
        UserError: as ``build_job``, or a recipe with another tokenizer.
    """
    data = build_data(recipe, cache_folder())
    fresh = data.tokenizer()
    if fresh is not None and tokenizer is not None:
        _restore(fresh, tokenizer, recipe)
    return Job(recipe, data, _prepared(recipe, data), model)


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
