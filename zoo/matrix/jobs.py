"""What combinations are tried on: each task with each architecture, over a small recipe ``matrix/TASK``."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from zoo.builder import build_data, build_task, check_buildable
from zoo.contracts.task import Batch, Task
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.recipe.find import RecipeFolders
from zoo.registry import Registry
from zoo.training.plan import BatchPlan

STEPS = 20
"""Training steps of a row of the covering array, and batches that a job holds ready."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One task with one architecture.

    Attributes:
        architecture, task: names.
        values: the recipe as plain values, with the architecture in it.
        refusal: why the two don't go together, whatever their parts; ``None`` where they do.
    """

    architecture: str
    task: str
    values: Mapping[str, Any]
    refusal: str | None

    @property
    def name(self) -> str:
        """``gpt2/causal_lm``."""
        return f"{self.architecture}/{self.task}"

    def recipe(self, registry: Registry, parts: Mapping[str, Any]) -> Recipe:
        """The job's recipe with parts of the architecture by their slot.

        Raises:
            UserError: parts that can't be told so.
        """
        values = copy.deepcopy(dict(self.values))
        values["architecture"] |= parts
        return Recipe.from_dict(values, registry=registry, name=self.name)


class Bench:
    """A job's data: read once, then a task and the batches of some training steps."""

    def __init__(self, recipe: Recipe, cache: Path) -> None:
        data = build_data(recipe, cache)
        data.prepare()
        self.task: Task = build_task(recipe, data)
        self.description = self.task.describe()
        plan = BatchPlan(seed=0, size=data.size("train"), batch_size=data.config.batch_size)
        draws = [plan.step(step) for step in range(STEPS)]
        self.batches: list[Batch] = [self.task.prepare(data.batch(draw, "train"), draw, "train") for draw in draws]

    def batch(self, step: int, dtype: torch.dtype) -> Batch:
        """The batch of a step, its pixels in the model's precision."""
        return {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor
            for name, tensor in self.batches[step].items()
        }


def all_jobs(registry: Registry) -> list[Job]:
    """Each task that has a recipe ``matrix/TASK``, with each architecture."""
    return list(_jobs(registry))


def _jobs(registry: Registry) -> Iterator[Job]:
    folders = RecipeFolders(registry)
    for task in registry.components("task"):
        file = folders.find(f"matrix/{task.name}", presets=False)
        if file is None:
            continue
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
        for architecture in registry.components("architecture"):
            own = {**values, "architecture": {**values["architecture"], "name": architecture.name}}
            yield Job(architecture.name, task.name, own, _refusal(own, registry))


def _refusal(values: Mapping[str, Any], registry: Registry) -> str | None:
    try:
        check_buildable(Recipe.from_dict(values, registry=registry))
    except UserError as error:
        return error.what
    return None
