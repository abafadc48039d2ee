"""What workers are told: the cells of a grid, and the recipes that they share but for their seeds."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo.comparison.cells import Cell
from zoo.comparison.folder import ENDED
from zoo.comparison.index import Entry
from zoo.recipe import Recipe
from zoo.training.files import write_bytes

_SEED = re.compile(r"^seed: .*$", re.MULTILINE)


class Job(NamedTuple):
    """A cell as a worker sees it."""

    address: str
    """Where its run stands."""
    title: str
    """How people call it."""
    variant: str
    """Its place in the grid,"""
    task: str
    """and its task."""
    seed: int
    """Its seed."""
    recipe: int
    """Number of its recipe in the plan."""
    threads: int
    """Of torch."""
    test: bool
    """Whether the test part is measured too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shared:
    """A recipe that cells share but for their seeds.

    Attributes:
        text: as YAML, with some seed.
        plugins: environment variables by which a process finds its components.
        sources: what ``recipe.lock`` says of each component.
        steps: of a run.
        devices: of a run, over all nodes; 0 is all that there are.
    """

    text: str
    plugins: dict[str, str]
    sources: dict[str, Any]
    steps: int
    devices: int

    @classmethod
    def of(cls, recipe: Recipe) -> Shared:
        """That of a recipe."""
        return cls(
            text=recipe.to_yaml(),
            plugins=recipe.registry.environment(),
            sources=recipe.lock()["components"],
            steps=recipe.trainer["max_steps"],
            devices=devices(recipe),
        )

    def with_seed(self, seed: int) -> str:
        """The recipe of a cell, as YAML."""
        text, count = _SEED.subn(f"seed: {seed}", self.text)
        assert count == 1
        return text


class Plan(NamedTuple):
    """All cells that have a recipe."""

    recipes: Sequence[Shared]
    jobs: Sequence[Job]

    @classmethod
    def of(cls, cells: Iterable[Cell], *, is_tuned: bool) -> Plan:
        """The plan of cells in the order in which they are best begun; one of those that share an address.

        Args:
            cells: those without a recipe are passed over.
            is_tuned: whether what is reported was chosen by the validation part, so that the test part is measured.
        """
        recipes: list[Shared] = []
        numbers: dict[int, int] = {}
        jobs: dict[str, Job] = {}
        for cell in cells:
            if cell.base is None or cell.address in jobs:
                continue
            number = numbers.setdefault(id(cell.base), len(recipes))
            if number == len(recipes):
                recipes.append(Shared.of(cell.base))
            is_tested = is_tuned and cell.phase == "report"
            place = (cell.address, cell.title, cell.variant, cell.task, cell.seed)
            jobs[cell.address] = Job(*place, number, cell.threads, is_tested)
        return cls(recipes, [*jobs.values()])

    def write(self, folder: Path) -> Path:
        """Put it into a file that is named by its content, so that one plan is one file however often it is made."""
        document = {"recipes": [dataclasses.asdict(recipe) for recipe in self.recipes], "jobs": self.jobs}
        text = json.dumps(document, separators=(",", ":")).encode()
        path = folder / f"{hashlib.sha256(text).hexdigest()[:12]}.json"
        folder.mkdir(exist_ok=True)
        if path.is_file():
            path.touch()  # the newest one is what --watch shows
        else:
            write_bytes(path, text)
        return path

    @classmethod
    def read(cls, path: Path) -> Plan:
        """What ``write`` has written."""
        document = json.loads(path.read_bytes())
        return cls([Shared(**recipe) for recipe in document["recipes"]], [Job(*job) for job in document["jobs"]])


def devices(recipe: Recipe) -> int:
    """Devices of a run over all nodes; 0 is all that there are."""
    if recipe.trainer["accelerator"] == "cpu" and recipe.trainer["devices"] == "auto":
        return int(recipe.trainer["num_nodes"])
    said, nodes = recipe.trainer["devices"], recipe.trainer["num_nodes"]
    if isinstance(said, list):
        return len(said) * nodes
    if isinstance(said, str) and "," in said:
        return len([name for name in said.split(",") if name.strip()]) * nodes
    count = int(said) if str(said).lstrip("-").isdigit() else -1
    return count * nodes if count > 0 else 0


def settled(job: Job, entry: Entry | None, since: int) -> bool:
    """Whether a cell needs no further start.

    Args:
        job: the cell.
        entry: what the index says of it.
        since: place in the index; a failure that is noted before it is tried again, one after it isn't.
    """
    if entry is None:
        return False
    if entry.status == "completed":
        return not job.test or has_test(entry.record.result)
    return entry.status in ENDED or (entry.status in ("failed", "invalid") and entry.place >= since)


def has_test(result: dict[str, Any]) -> bool:
    """Whether a result has metrics of the test part."""
    return any(name.startswith("test_") for name in result.get("metrics", {}))
