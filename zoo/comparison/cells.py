"""One cell of a comparison: a variant on a task with a seed, under an address that says what would be computed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, Literal

from zoo.recipe import Recipe

ADDRESS_DIGITS = 16
LEFT_OUT = ("plugins", "logger")
"""Keys of a recipe that no result depends on: where code lies (its hash counts) and who else is told."""

Status = Literal["planned", "completed", "diverged", "failed", "interrupted", "invalid"]


@dataclasses.dataclass
class Cell:
    """A variant on a task with a seed, and how it went.

    Attributes:
        variant, task, seed: its place in the grid.
        recipe: what is run; ``None`` where the parts can't be put together.
        address: of its run; cells that would compute the same share one.
        status: ``planned`` until it has been run or was found invalid.
        reason: in words, where the status needs one.
        result: what the run's result.json holds; empty without one.
    """

    variant: str
    task: str
    seed: int
    recipe: Recipe | None = None
    address: str = ""
    status: Status = "planned"
    reason: str = ""
    result: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def title(self) -> str:
        """How people call it."""
        return f"{self.variant} / {self.task} / seed {self.seed}"

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of its last step."""
        return self.result.get("metrics", {})


def outcome(status: str, reason: str | None) -> str:
    """How a cell went: its status, and the reason where there is one that doesn't begin with it."""
    return f"{status}: {reason}" if reason and not reason.startswith(status) else reason or status


def address(recipe: Recipe) -> str:
    """A short hash of the resolved recipe, its seed included, and of the source of every component in it."""
    values = {key: value for key, value in recipe.tree.items() if key not in LEFT_OUT}
    sources = {key: record["sha256"] or record for key, record in recipe.lock()["components"].items()}
    text = json.dumps([values, sources], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ADDRESS_DIGITS]
