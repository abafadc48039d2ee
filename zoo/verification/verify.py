"""Published results, trained again: does each figure lie within its tolerance?"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from zoo.builder import check_buildable
from zoo.errors import Interrupted, RunFailed, UserError
from zoo.recipe import Recipe
from zoo.registry import Registry
from zoo.training.evaluate import PREFIX, evaluate
from zoo.training.train import train
from zoo.verification.entries import Check, Entry, assignments

Told = Callable[[str], None]


@dataclasses.dataclass
class _Trained:
    """Runs of this call, by what was trained, so that several figures of one model cost one training."""

    runs: dict[str, Path | str] = dataclasses.field(default_factory=dict)


def verify(entries: Sequence[Entry], registry: Registry, told: Told = lambda line: None) -> dict[str, Any]:
    """Measure every check of some entries.

    Args:
        entries: what ``find_entries`` gave.
        registry: where components are found.
        told: is given a line before each check and one after it.

    Returns:
        ``passed`` and ``failed``, the numbers of checks; ``seconds``; ``entries``, each with its checks.

    Raises:
        UserError: a recipe that can't be built, before anything is trained; a metric that the task doesn't have.
        Interrupted: a signal came.
    """
    begin = time.monotonic()
    recipes = {(entry.name, name): _checked(entry, name, registry) for entry in entries for name in entry.checks}
    documents = []
    for entry in entries:
        trained, checks = _Trained(), []
        for name, check in entry.checks.items():
            told(f"{entry.name}: {name} (about {check.seconds:,.0f} s)")
            found = _outcome(check, recipes[entry.name, name], trained)
            told(f"{entry.name}: {name} {_said(found)}")
            checks.append({"name": name, **found})
        documents.append(_document(entry, checks))
    statuses = [check["status"] for document in documents for check in document["checks"]]
    return {
        "passed": statuses.count("pass"),
        "failed": statuses.count("fail"),
        "seconds": time.monotonic() - begin,
        "entries": documents,
    }


def _checked(entry: Entry, name: str, registry: Registry) -> Recipe:
    """The recipe of a check, found to be one that can be built, under the name that its run folder shall have."""
    check = entry.checks[name]
    recipe = dataclasses.replace(check.load(registry), name=f"verify-{entry.name}-{name}")
    check_buildable(recipe)
    metrics = recipe.component("task").load().metrics
    if not any(check.metric.startswith(name) for name in metrics):  # slices have a metric's name and more behind it
        raise UserError(
            f"check {name} of {entry.name} asks for the metric {check.metric}, which the task doesn't have",
            where=recipe.where("task"),
            fix=f"choose one of {', '.join(metrics)}",
        )
    return recipe


def _document(entry: Entry, checks: list[dict[str, Any]]) -> dict[str, Any]:
    failed = any(check["status"] == "fail" for check in checks)
    return {
        "name": entry.name,
        "claim": entry.claim,
        "source": entry.source,
        "status": "fail" if failed else "pass",
        "seconds": sum(check["seconds"] for check in checks),
        "checks": checks,
    }


def _outcome(check: Check, recipe: Recipe, trained: _Trained) -> dict[str, Any]:
    """What a check found, and how long it took; a run that came to a bad end fails it."""
    begin, run, reason = time.monotonic(), None, None
    value: float | None = None
    try:
        if check.classifier is not None:
            from zoo.verification.classifiers import classifier_accuracy

            value = classifier_accuracy(recipe, check.classifier, check.knobs, check.split)
        else:
            run = _run(check, recipe, trained)
            value = _measure(check, run)
    except Interrupted:
        raise
    except RunFailed as error:
        reason = str(error)
    return {
        "metric": check.metric,
        "published": check.published,
        "at_least": check.at_least,
        "at_most": check.at_most,
        "bounds": check.bounds,
        "value": value,
        "status": "pass" if value is not None and check.passes(value) else "fail",
        "reason": reason,
        "seconds": time.monotonic() - begin,
        "expected_seconds": check.seconds,
        "why": check.why,
        "run": run and str(run),
    }


def _said(found: dict[str, Any]) -> str:
    """How a check went, in a few words."""
    what = found["reason"] if found["value"] is None else f"{found['value']:.4g}, to be {found['bounds']}"
    return f"{found['status'].upper()}: {found['metric']} {what} ({found['seconds']:,.0f} s)"


def _run(check: Check, recipe: Recipe, trained: _Trained) -> Path:
    """Train, unless a check before this one has trained the same."""
    key = json.dumps([str(check.file), check.overrides], sort_keys=True)
    if key not in trained.runs:
        try:
            trained.runs[key] = Path(train(recipe)["run"])
        except Interrupted:
            raise
        except RunFailed as error:
            trained.runs[key] = str(error)
    found = trained.runs[key]
    if isinstance(found, str):
        raise RunFailed(found)
    return found


def _measure(check: Check, run: Path) -> float:
    metrics = evaluate(run, assignments(check.measured_on), check.split)["metrics"]
    name = f"{PREFIX[check.split]}_{check.metric}"
    if name not in metrics:
        raise UserError(
            f"the run has no metric {check.metric}",
            where=str(run),
            fix=f"choose one of {', '.join(found.partition('_')[2] for found in metrics)}",
        )
    return metrics[name]
