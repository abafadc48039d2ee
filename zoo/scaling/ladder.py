"""A ladder: a comparison whose variants are sizes and amounts of data, and what its runs say about both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from zoo.builder import build_model
from zoo.contracts.data import Description
from zoo.errors import RunFailed, UserError
from zoo.info.parameters import parts
from zoo.recipe import Comparison, Recipe, load_recipe
from zoo.scaling.fit import Points
from zoo.training.job import prepare_task
from zoo.training.run import RunFolder

Counted = Literal["all", "without-embeddings"]
"""Which parameters are N: all, as in Hoffmann et al. 2022; or without tables of tokens and positions, as in Kaplan et
al. 2020, arXiv:2001.08361, whose exponents differ much for that reason (Pearce and Song 2024, arXiv:2406.12907; Porian
et al. 2024, arXiv:2406.19146)."""


class Rung(NamedTuple):
    """One run."""

    variant: str
    """Its name in the comparison."""
    seed: int
    """Its seed."""
    parameters: int
    """All of the model's."""
    without_embeddings: int
    """Those that are no table of tokens or positions."""
    tokens: int
    """Trained on, as often as they were seen."""
    loss: float
    """In nats per token."""

    def size(self, counted: Counted) -> int:
        """N."""
        return self.parameters if counted == "all" else self.without_embeddings


class Ladder(NamedTuple):
    """What a comparison came to."""

    rungs: list[Rung]
    """Runs that completed with a finite loss."""
    left_out: dict[str, int]
    """How many there are of others, by status."""
    metric: str
    """Which of their metrics the loss is."""

    def points(self, counted: Counted) -> Points:
        """The runs as columns."""
        rows = [(rung.size(counted), rung.tokens, rung.loss) for rung in self.rungs]
        return Points(*np.array(rows, np.float64).reshape(-1, 3).T)


def check_ladder(comparison: Comparison) -> None:
    """Refuse a comparison that is no ladder.

    Raises:
        UserError: it has several tasks.
    """
    if len(comparison.tasks) > 1:
        raise UserError(
            f"a ladder has one task, {comparison.name} has {len(comparison.tasks)}: {', '.join(comparison.tasks)}",
            where=str(comparison.file),
            fix="name one under compare.tasks; losses of different tasks follow different laws",
        )


def read_ladder(document: Mapping[str, Any], metric: str | None = None) -> Ladder:
    """The runs of a comparison that completed.

    Args:
        document: what ``compare_variants`` returned.
        metric: of the runs, a loss in nats; by default that of the test part where all have it, as runs with a tuned
            knob do, else that of the validation part.

    Raises:
        UserError: a metric that no run has.
        RunFailed: no run completed.
    """
    cells = [cell for cell in document["cells"] if cell.get("phase", "report") == "report"]
    completed = [cell for cell in cells if cell["status"] == "completed"]
    if not completed:
        raise RunFailed("no run of the ladder completed")
    metric = metric or _metric(completed)
    known = sorted({name for cell in completed for name in cell["metrics"]})
    if metric not in known:
        raise UserError(f"no run has the metric {metric}", where="--metric", fix=f"choose one of {', '.join(known)}")
    usable = [cell for cell in completed if _is_number(cell["metrics"].get(metric))]
    left_out = Counter(cell["status"] for cell in cells if cell["status"] != "completed")
    left_out[f"without a finite {metric}"] = len(completed) - len(usable)
    return Ladder(list(_rungs(usable, metric)), {name: count for name, count in left_out.items() if count}, metric)


def _metric(cells: Sequence[Mapping[str, Any]]) -> str:
    return "test_loss" if all("test_loss" in cell["metrics"] for cell in cells) else "val_loss"


def _is_number(value: Any) -> bool:
    return value is not None and bool(np.isfinite(value))


def _rungs(cells: Sequence[Mapping[str, Any]], metric: str) -> Iterator[Rung]:
    embeddings: dict[str, int] = {}
    for cell in cells:
        folder = RunFolder(Path(cell["run"]))
        result = json.loads(folder.result.read_text(encoding="utf-8"))
        variant, parameters = cell["variant"], result["parameters"]
        if variant not in embeddings:
            embeddings[variant] = count(load_recipe(folder.recipe), _sizes(folder)).embedding
        others = parameters - embeddings[variant]
        yield Rung(variant, cell["seed"], parameters, others, result["tokens"], cell["metrics"][metric])


def _sizes(folder: RunFolder) -> Description:
    """Sizes of the data that a run had."""
    sizes: dict[str, Any] = folder.locked()["sizes"]
    values: dict[str, Any] = {name: tuple(size) if isinstance(size, list) else size for name, size in sizes.items()}
    return Description(**values)


class Count(NamedTuple):
    """Parameters of a model."""

    total: int
    """All of them."""
    embedding: int
    """Those in tables of tokens and positions."""

    def of(self, counted: Counted) -> int:
        """N."""
        return self.total if counted == "all" else self.total - self.embedding


def count(recipe: Recipe, description: Description | None) -> Count:
    """Parameters of a recipe's model, counted on the meta device.

    Raises:
        UserError: parts that don't fit each other.
    """
    found = parts(build_model(recipe, description, device="meta"), {})
    return Count(sum(part.parameters for part in found), sum(part.parameters for part in found if part.embeds))


class Planned(NamedTuple):
    """A run before it is made."""

    variant: str
    """Its name in the comparison."""
    parameters: Count
    """Those of its model."""
    tokens: int | None
    """It will be trained on; ``None`` where the data doesn't say how long a row is."""


def planned_rungs(comparison: Comparison) -> list[Planned]:
    """The sizes and amounts of data of a ladder; its data is read, nothing is trained.

    Raises:
        UserError: a mistake in a recipe.
    """
    sizes: dict[str, Description] = {}
    counts: dict[str, Count] = {}
    found = []
    (task,) = comparison.tasks
    for variant in comparison.variants:
        recipe = comparison.recipe(variant, task, comparison.seeds[0])
        key = json.dumps([recipe.tree.get(section) for section in ("data", "task", "weights")], sort_keys=True)
        if key not in sizes:
            sizes[key] = prepare_task(recipe).describe()
        model = json.dumps([key, recipe.tree["architecture"]], sort_keys=True)
        if model not in counts:
            counts[model] = count(recipe, sizes[key])
        length, rows = sizes[key].max_length, recipe.config("data").batch_size
        tokens = None if length is None else recipe.trainer["max_steps"] * rows * length
        found.append(Planned(variant, counts[model], tokens))
    return found
