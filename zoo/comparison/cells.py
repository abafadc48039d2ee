"""One cell of a comparison: a variant on a task with a seed, under an address that says what would be computed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from zoo.recipe import Recipe

ADDRESS_DIGITS = 16
LEFT_OUT = ("plugins", "logger", "seed")
"""Keys of a recipe that its fingerprint leaves out: where code lies (its hash counts), who else is told, the seed."""

Status = Literal["planned", "completed", "diverged", "failed", "interrupted", "invalid"]
Phase = Literal["tune", "report"]


@dataclasses.dataclass
class Cell:
    """A variant on a task with a seed, and how it went.

    Attributes:
        variant, task, seed: its place in the grid.
        base: its recipe but for the seed; ``None`` where the parts can't be put together.
        address: of its run; cells that would compute the same share one.
        phase: whether it serves to choose a point of the tuning grid, or is reported.
        point: the values of the tuning grid that it has, by key path.
        threads: of torch.
        status: ``planned`` until it has been run or was found invalid.
        reason: in words, where the status needs one.
        result: what the run's result.json holds; empty without one.
        costs: what its run took, by name; empty without one.
    """

    variant: str
    task: str
    seed: int
    base: Recipe | None = None
    address: str = ""
    phase: Phase = "report"
    point: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    threads: int = 1
    status: Status = "planned"
    reason: str = ""
    result: dict[str, Any] = dataclasses.field(default_factory=dict)
    costs: dict[str, float | None] = dataclasses.field(default_factory=dict)

    @property
    def recipe(self) -> Recipe | None:
        """What is run, made when it is asked for: a grid may have a hundred thousand."""
        return self.base and self.base.with_seed(self.seed)

    @property
    def title(self) -> str:
        """How people call it."""
        said = "".join(f" / {key}={value}" for key, value in self.point.items())
        return f"{self.variant} / {self.task} / seed {self.seed}{said}"

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of its last step."""
        return self.result.get("metrics", {})


def outcome(status: str, reason: str | None) -> str:
    """How a cell went: its status, and the reason where there is one that doesn't begin with it."""
    return f"{status}: {reason}" if reason and not reason.startswith(status) else reason or status


def fingerprint(recipe: Recipe, data: str, threads: int) -> str:
    """A hash of all that a run depends on but the seed.

    Args:
        recipe: as resolved; the source of every component in it counts.
        data: the fingerprint of the data.
        threads: of torch, which sums in another order with another number.
    """
    values = {key: value for key, value in recipe.tree.items() if key not in LEFT_OUT}
    sources = {key: record["sha256"] or record for key, record in recipe.lock()["components"].items()}
    return hashlib.sha256(json.dumps([values, sources, data, threads], sort_keys=True).encode()).hexdigest()


def address(fingerprint: str, seed: int) -> str:
    """A short hash of what a cell would compute."""
    return hashlib.sha256(f"{fingerprint} {seed}".encode()).hexdigest()[:ADDRESS_DIGITS]
