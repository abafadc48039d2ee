"""All cells of a comparison, each composed and built without values before any of them runs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from zoo.builder import build_model, build_weights, check_buildable
from zoo.comparison.cells import Cell, address
from zoo.contracts.task import Task
from zoo.errors import UserError
from zoo.recipe import Comparison, Recipe
from zoo.training.job import prepare_task

Attempts = dict[tuple[str, str], Recipe | UserError]
"""For each variant and task a recipe, or why there is none."""


def make_grid(comparison: Comparison) -> list[Cell]:
    """Cells in the order of variants, tasks and seeds. Parts that don't fit each other make a cell ``invalid``.

    What no task or no variant can take is no combination but a mistake, and so is a task without a valid cell.

    Raises:
        UserError: a mistake; nothing was written.
    """
    attempts = _compose(comparison)
    _refuse_mistakes(attempts, comparison)
    _build(attempts)
    for task in comparison.tasks:
        _refuse_empty(task, {variant: attempts[variant, task] for variant in comparison.variants})
    return [
        _cell(comparison, variant, task, seed, attempts[variant, task])
        for variant in comparison.variants
        for task in comparison.tasks
        for seed in comparison.seeds
    ]


def _compose(comparison: Comparison) -> Attempts:
    attempts: Attempts = {}
    for variant in comparison.variants:
        for task in comparison.tasks:
            try:
                attempts[variant, task] = comparison.recipe(variant, task, comparison.seeds[0])
            except UserError as error:
                attempts[variant, task] = error
    return attempts


def _refuse_mistakes(attempts: Attempts, comparison: Comparison) -> None:
    for place, names in enumerate((comparison.variants, comparison.tasks)):
        for name in names:
            row = [attempt for key, attempt in attempts.items() if key[place] == name]
            errors = [attempt for attempt in row if isinstance(attempt, UserError)]
            if len(errors) == len(row):
                raise errors[0]


def _build(attempts: Attempts) -> None:
    """Swap each recipe that can't be built, or whose data isn't there, for the reason."""
    tasks: dict[str, Task | UserError] = {}
    for key, attempt in attempts.items():
        if isinstance(attempt, Recipe):
            try:
                build_weights(attempt)
                check_buildable(attempt)
                build_model(attempt, _task(attempt, tasks).describe(), device="meta")
            except UserError as error:
                attempts[key] = error


def _task(recipe: Recipe, tasks: dict[str, Task | UserError]) -> Task:
    """The task over its data, prepared once for all cells that share it; their runs find it ready."""
    key = json.dumps([recipe.tree.get(section) for section in ("data", "task", "weights")], sort_keys=True)
    if key not in tasks:
        try:
            tasks[key] = prepare_task(recipe)
        except UserError as error:
            tasks[key] = error
    found = tasks[key]
    if isinstance(found, UserError):
        raise found
    return found


def _refuse_empty(task: str, attempts: Mapping[str, Recipe | UserError]) -> None:
    """Refuse a task on which nothing can run: each reason once, with the variants that it keeps from running."""
    reasons: dict[str, list[str]] = {}
    for variant, attempt in attempts.items():
        if isinstance(attempt, Recipe):
            return
        reasons.setdefault(str(attempt), []).append(variant)
    lines = [f"- {', '.join(variants)}: {reason}".replace("\n", "\n  ") for reason, variants in reasons.items()]
    raise UserError("\n".join([f"no variant can run on task {task}:", *lines]))


def _cell(comparison: Comparison, variant: str, task: str, seed: int, attempt: Recipe | UserError) -> Cell:
    if isinstance(attempt, UserError):
        return Cell(variant, task, seed, status="invalid", reason=str(attempt))
    recipe = attempt if seed == attempt.seed else comparison.recipe(variant, task, seed)
    return Cell(variant, task, seed, recipe, address(recipe))
