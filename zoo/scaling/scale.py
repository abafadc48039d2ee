"""Train a ladder, or go on with it, and fit its law."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from zoo.comparison.compare import Watcher, compare_variants, plan
from zoo.errors import RunFailed, UserError
from zoo.recipe import Comparison
from zoo.scaling.fit import AMOUNTS, DRAWS, RUNS, SIZES, fit_law
from zoo.scaling.ladder import Counted, Planned, check_ladder, planned_rungs, read_ladder
from zoo.scaling.law import FLOPS_PER_PARAMETER_AND_TOKEN
from zoo.scaling.outlook import hindsight
from zoo.scaling.report import document, write


def scale(
    comparison: Comparison,
    run: Path | None = None,
    watcher: Watcher | None = None,
    *,
    executor: str | None = None,
    workers: int | None = None,
    counted: Counted = "all",
    metric: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Any]:
    """Run what has not been run of a ladder, fit its law, and write both down in its folder.

    Args:
        comparison: its variants are sizes and amounts of data.
        run, watcher, executor, workers: as ``compare_variants`` takes them.
        counted: which parameters are N.
        metric: the loss, see ``read_ladder``.
        draws, seed: of the bootstrap.

    Returns:
        What scaling.json holds.

    Raises:
        UserError: a mistake, or a ladder that can't determine a law, before anything runs.
        RunFailed: too many runs of it failed.
        Interrupted: as ``compare_variants``.
    """
    comparison = _undecided(comparison)
    _planned(comparison, counted)
    compared = compare_variants(comparison, run, watcher, executor=executor, workers=workers)
    ladder = read_ladder(compared, metric)
    points = ladder.points(counted)
    try:
        fit = fit_law(points, draws=draws, seed=seed)
    except UserError as error:
        raise RunFailed(f"{error.what}\n  runs left out: {ladder.left_out or 'none'}") from error
    past = hindsight(points, draws=draws, seed=seed)
    folder, (task,) = Path(compared["folder"]), comparison.tasks
    found = document(ladder, fit, past, counted=counted, seed=seed, task=task, folder=folder)
    write(folder, found, fit)
    return found


def plan_ladder(comparison: Comparison, run: Path | None = None, *, counted: Counted = "all") -> dict[str, Any]:
    """The runs of a ladder with their sizes, amounts of data and compute; none is made.

    Raises:
        UserError: as ``scale``.
    """
    comparison = _undecided(comparison)
    ladder = _planned(comparison, counted)
    statuses: dict[str, list[str]] = {}
    for cell in plan(comparison, run)["cells"]:
        statuses.setdefault(cell["variant"], []).append(cell["status"])
    rungs = []
    for planned in ladder:
        size, states = planned.parameters.of(counted), statuses[planned.variant]
        flops = None if planned.tokens is None else FLOPS_PER_PARAMETER_AND_TOKEN * size * planned.tokens
        rungs.append(
            {
                "variant": planned.variant,
                "parameters": planned.parameters.total,
                "without_embeddings": planned.parameters.total - planned.parameters.embedding,
                "tokens": planned.tokens,
                "flops": flops,
                "statuses": {state: states.count(state) for state in dict.fromkeys(states)},
            }
        )
    return {"counted": counted, "seeds": [*comparison.seeds], "rungs": rungs}


def _undecided(comparison: Comparison) -> Comparison:
    """The same without verdicts: a ladder's sizes differ, and nobody asks whether."""
    return dataclasses.replace(comparison, verdicts=False)


def _planned(comparison: Comparison, counted: Counted) -> list[Planned]:
    """The rungs of a ladder; refuses one with too few before hours are spent on it."""
    check_ladder(comparison)
    planned = planned_rungs(comparison)
    sizes = len({rung.parameters.of(counted) for rung in planned})
    amounts = len({rung.tokens for rung in planned})
    runs = len(planned) * len(comparison.seeds)
    if sizes < SIZES or amounts < AMOUNTS or runs < RUNS:
        raise UserError(
            f"the ladder has {runs} runs of {sizes} sizes and {amounts} amounts of data; its law has five constants "
            f"and needs {RUNS} runs of {SIZES} sizes and {AMOUNTS} amounts at least",
            where=str(comparison.file),
            fix="add sizes, or values of trainer.max_steps, to the variants",
        )
    return planned
