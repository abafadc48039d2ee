"""All cells of a comparison, each composed and built without values before any of them runs."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zoo.builder import build_model, build_weights, check_buildable
from zoo.comparison.cells import Cell, Phase, address, fingerprint
from zoo.comparison.costs import unequal
from zoo.comparison.match import Matched, measure, solve
from zoo.contracts.data import Description
from zoo.contracts.task import Task
from zoo.errors import UserError
from zoo.recipe import Comparison, Recipe
from zoo.training.job import prepare_task

Place = tuple[str, str]
"""A variant and a task."""
Point = Mapping[str, Any]
"""Values of the tuning grid by key path."""

TUNING_SEEDS = 1
"""Seeds of each point of a tuning grid; none of them is reported."""


@dataclasses.dataclass
class Attempt:
    """A variant on a task.

    Attributes:
        recipe: what is run, or why nothing can be.
        description: of its data, once that is prepared.
        data: fingerprint of its data, likewise.
        settled: values over all others: what was matched, or calibrated.
        matched: how near the match came, where one was asked for.
    """

    recipe: Recipe | UserError
    description: Description = dataclasses.field(default_factory=Description)
    data: str = ""
    settled: dict[str, Any] = dataclasses.field(default_factory=dict)
    matched: Matched | None = None


class Grid:
    """Every variant on every task. Parts that don't fit each other make ``invalid`` cells.

    What no task or no variant can take is no combination but a mistake, and so is a task without a valid variant.

    Raises:
        UserError: a mistake; nothing was written.
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        places = itertools.product(comparison.variants, comparison.tasks)
        self.attempts = {place: Attempt(self._composed(place, {})) for place in places}
        self._refuse_mistakes()
        self._build()
        if comparison.match is not None:
            self._match()
        for task in comparison.tasks:
            _refuse_empty(task, {variant: self.attempts[variant, task].recipe for variant in comparison.variants})

    def tuning(self) -> list[Cell]:
        """Cells that the points of the tuning grid are chosen by; none where nothing is tuned."""
        names = [*self.comparison.tune]
        values = [[node.plain() for node in nodes] for nodes in self.comparison.tune.values()]
        points = [dict(zip(names, choice, strict=True)) for choice in itertools.product(*values)] if names else []
        first = max(self.comparison.seeds) + 1
        seeds = range(first, first + TUNING_SEEDS)
        return [cell for point in points for cell in self._cells(seeds, dict.fromkeys(self.attempts, point), "tune")]

    def reported(self, points: Mapping[Place, Point] | None = None) -> list[Cell]:
        """Cells that are reported, in the order of variants, tasks and seeds; at the points that were chosen."""
        return self._cells(self.comparison.seeds, points or {}, "report")

    def settle(self, place: Place, values: Point) -> None:
        """Set values over all others of a recipe."""
        attempt = self.attempts[place]
        attempt.settled |= values
        if isinstance(attempt.recipe, Recipe):
            attempt.recipe = self._composed(place, attempt.settled)

    def remarks(self) -> list[str]:
        """How near the match came to its value, or on which tasks sizes differ, as lines for people."""
        if self.comparison.match is not None:
            return [
                f"{attempt.matched.line(variant)} on {task}"
                for (variant, task), attempt in self.attempts.items()
                if attempt.matched is not None
            ]
        sizes: dict[str, dict[str, float]] = {}
        for (variant, task), attempt in self.attempts.items():
            if isinstance(attempt.recipe, Recipe):
                count = measure(attempt.recipe, "parameters", attempt.description)
                sizes.setdefault(task, {})[variant] = count
        return unequal(sizes)

    def _composed(self, place: Place, settled: Point) -> Recipe | UserError:
        try:
            return self.comparison.recipe(*place, self.comparison.seeds[0], settled)
        except UserError as error:
            return error

    def _refuse_mistakes(self) -> None:
        for side, names in enumerate((self.comparison.variants, self.comparison.tasks)):
            for name in names:
                row = [attempt.recipe for place, attempt in self.attempts.items() if place[side] == name]
                errors = [attempt for attempt in row if isinstance(attempt, UserError)]
                if len(errors) == len(row):
                    raise errors[0]

    def _build(self) -> None:
        """Swap each recipe that can't be built, or whose data isn't there, for the reason."""
        tasks: dict[str, Task | UserError] = {}
        for attempt in self.attempts.values():
            if isinstance(attempt.recipe, Recipe):
                try:
                    build_weights(attempt.recipe)
                    check_buildable(attempt.recipe)
                    task = _task(attempt.recipe, tasks)
                    attempt.description, attempt.data = task.describe(), task.data.fingerprint()
                    build_model(attempt.recipe, attempt.description, device="meta")
                except UserError as error:
                    attempt.recipe = error

    def _match(self) -> None:
        """Give every variant as much of what is matched.

        Raises:
            UserError: a variant that can't have it.
        """
        match = self.comparison.match
        assert match is not None
        for (variant, task), attempt in self.attempts.items():
            if isinstance(attempt.recipe, Recipe):
                value = self._wanted(task, match.quantity, match.value)
                try:
                    attempt.matched = solve(attempt.recipe, match.quantity, value, match.tolerance, attempt.description)
                except UserError as error:
                    raise UserError(f"{variant} on {task}: {error.what}", where=error.where, fix=error.fix) from error
                self.settle((variant, task), attempt.matched.overrides)

    def _wanted(self, task: str, quantity: str, value: float | str) -> float:
        """The number that is to be reached, which may be some variant's own, before it is changed itself."""
        if not isinstance(value, str):
            return value
        own = self.attempts[value, task]
        if isinstance(own.recipe, UserError):
            raise UserError(f"compare.match takes the {quantity} of {value}, which can't run on {task}: {own.recipe}")
        return measure(own.recipe, quantity, own.description)

    def _cells(self, seeds: Sequence[int] | range, points: Mapping[Place, Point], phase: Phase) -> list[Cell]:
        cells: list[Cell] = []
        for (variant, task), attempt in self.attempts.items():
            point = points.get((variant, task), {})
            recipe = attempt.recipe
            if point and isinstance(recipe, Recipe):
                recipe = self._composed((variant, task), {**attempt.settled, **point})
            elif (variant, task) in points and isinstance(recipe, Recipe):
                recipe = UserError("no point of the tuning grid completed, so there is none to report")
            cells += _row(variant, task, seeds, recipe, attempt.data, self.comparison.threads, phase, point)
        return cells


def _row(
    variant: str,
    task: str,
    seeds: Iterable[int],
    recipe: Recipe | UserError,
    data: str,
    threads: int,
    phase: Phase,
    point: Point,
) -> list[Cell]:
    """A cell for each seed."""
    place: dict[str, Any] = {"phase": phase, "point": point, "threads": threads}
    if isinstance(recipe, UserError):
        return [Cell(variant, task, seed, status="invalid", reason=str(recipe), **place) for seed in seeds]
    kind = fingerprint(recipe, data, threads)
    return [Cell(variant, task, seed, recipe, address(kind, seed), **place) for seed in seeds]


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
