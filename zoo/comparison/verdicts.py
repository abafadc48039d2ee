"""What a comparison found: each variant against the baseline on each task, by the task's first metric."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from zoo.comparison.cells import Cell
from zoo.comparison.power import MOST, detectable, seeds_needed
from zoo.comparison.statistics import ALPHA, Answer, Asked, Better, Paired, Verdict, judge, noise_floor, paired
from zoo.recipe import Comparison

PENDING = ("planned", "interrupted")
"""States of a cell that will still run."""

PROVEN: frozenset[Verdict] = frozenset({"better", "worse", "equivalent"})
UNWANTED = "no verdict was asked for"

Seeds = Mapping[int, Cell]


class Pairing(NamedTuple):
    """A variant and the baseline on one task, with their reported cells by seed."""

    task: str
    variant: str
    metric: str
    better: Better
    margin: float | None
    own: Seeds
    baseline: Seeds

    @property
    def can_run(self) -> bool:
        """Whether the parts fit each other, which is known before anything runs."""
        return not any(cell.status == "invalid" for cell in [*self.own.values(), *self.baseline.values()])

    def waiting(self) -> int:
        """Seeds of which a cell will still run."""
        return len({cell.seed for cell in [*self.own.values(), *self.baseline.values()] if cell.status in PENDING})

    def both(self) -> list[tuple[Cell, Cell]]:
        """Cells of the variant and of the baseline that both have a value, by seed."""
        values, against = _values(self.own, self.metric), _values(self.baseline, self.metric)
        return [(self.own[seed], self.baseline[seed]) for seed in sorted(values) if seed in against]

    def lost(self) -> tuple[str, str]:
        """What became of seeds that only the other side has a value for: of the variant, and of the baseline."""
        values, against = _values(self.own, self.metric), _values(self.baseline, self.metric)
        return _lost(self.own, self.metric, against), _lost(self.baseline, self.metric, values)

    def asked(self) -> Asked:
        """The pairs, and what they can't prove.

        A variant that didn't complete a seed that the baseline completed is never better or equivalent by those that
        are left, and the other way round never worse or equivalent. While cells wait, nothing is proven: who looks
        at each seed as it comes in finds a difference sooner or later.
        """
        barred: set[Verdict] = set(PROVEN) if self.waiting() else set()
        own, theirs = self.lost()
        if own:
            barred |= {"better", "equivalent"}
        if theirs:
            barred |= {"worse", "equivalent"}
        values = [(cell.metrics[self.metric], against.metrics[self.metric]) for cell, against in self.both()]
        pairs = paired([value for value, _ in values], [value for _, value in values])
        return Asked(pairs, self.better, self.margin, frozenset(barred))


def verdicts(comparison: Comparison, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """A verdict, as plain values, for each task and variant but the baseline.

    They are judged as one family. What can't run is no part of it: that was known before any number was.
    """
    by_place = _by_place(cells)
    pairings = [pairing for task in comparison.tasks for pairing in _pairings(comparison, task, by_place)]
    is_wanted = comparison.verdicts
    asked = [pairing.asked() for pairing in pairings]
    if not is_wanted:
        asked = [one._replace(barred=PROVEN) for one in asked]
    is_judged = [is_wanted and pairing.can_run for pairing in pairings]
    family = iter(judge([one for one, judged in zip(asked, is_judged, strict=True) if judged]))
    answers = [next(family) if judged else judge([one])[0] for one, judged in zip(asked, is_judged, strict=True)]
    count = sum(pairing.can_run for pairing in pairings)
    return [
        _record(comparison.baseline, pairing, one, answer, count, "" if is_wanted else UNWANTED)
        for pairing, one, answer in zip(pairings, asked, answers, strict=True)
    ]


def baseline_spreads(comparison: Comparison, cells: Sequence[Cell]) -> dict[str, float]:
    """The standard deviation over seeds of the baseline's first metric, for tasks on which it has two values."""
    by_place, found = _by_place(cells), {}
    for task in comparison.tasks:
        own = by_place.get((comparison.baseline, task), {})
        values = _values(own, first_metric(task, own.values(), is_tuned=bool(comparison.tune))[0])
        if len(values) > 1:
            found[task] = statistics.stdev(values.values())
    return found


def first_metric(task: str, cells: Iterable[Cell], *, is_tuned: bool = False) -> tuple[str, Better]:
    """Name and direction of the first metric of a task's cells: of the test part where the other one served to tune."""
    recipe = next((recipe for cell in cells if cell.task == task and (recipe := cell.recipe) is not None), None)
    if recipe is None:
        return "", "lower"
    name, better = next(iter(recipe.component("task").load().metrics.items()))
    return f"{'test' if is_tuned else 'val'}_{name}", better


def _by_place(cells: Sequence[Cell]) -> dict[tuple[str, str], dict[int, Cell]]:
    """Reported cells by variant and task, then by seed."""
    found: dict[tuple[str, str], dict[int, Cell]] = {}
    for cell in cells:
        if cell.phase == "report":
            found.setdefault((cell.variant, cell.task), {})[cell.seed] = cell
    return found


def _pairings(
    comparison: Comparison, task: str, by_place: Mapping[tuple[str, str], dict[int, Cell]]
) -> Iterable[Pairing]:
    rows = {variant: by_place.get((variant, task), {}) for variant in comparison.variants}
    some = (cell for row in rows.values() for cell in row.values())
    metric, better = first_metric(task, some, is_tuned=bool(comparison.tune))
    margin = comparison.equivalence.get(task)
    baseline = rows[comparison.baseline]
    for variant, own in rows.items():
        if variant != comparison.baseline:
            yield Pairing(task, variant, metric, better, margin, own, baseline)


def _record(baseline: str, pairing: Pairing, one: Asked, answer: Answer, count: int, wish: str) -> dict[str, Any]:
    pairs = one.pairs
    further, minutes, needed = (None, None, "") if wish else _needed(pairing, pairs, answer)
    notes = [wish, _missing(pairing, pairs), *_losses(pairing), needed or _doubts(one, answer)]
    replicas = [*_values(pairing.baseline, pairing.metric).values()]
    return {
        "task": pairing.task,
        "variant": pairing.variant,
        "baseline": baseline,
        "metric": pairing.metric or None,
        "better": pairing.better,
        "difference": pairs.difference,
        "low": answer.low,
        "high": answer.high,
        "p": pairs.p,
        "p_adjusted": answer.p_adjusted,
        "p_sign_flip": pairs.p_sign_flip,
        "p_equivalence": answer.p_equivalence,
        "p_equivalence_adjusted": answer.p_equivalence_adjusted,
        "confidence": answer.confidence,
        "margin": pairing.margin,
        "noise": noise_floor(replicas),
        "detectable": _detectable(replicas, count),
        "seeds": pairs.seeds,
        "seeds_needed": further,
        "minutes_needed": minutes,
        "verdict": answer.verdict,
        "note": "; ".join(filter(None, notes)),
    }


def _missing(pairing: Pairing, pairs: Paired) -> str:
    """Why there is less than people may look for."""
    if pairing.waiting():
        return f"{len(pairing.own) - pairing.waiting()} of {len(pairing.own)} seeds so far"
    if pairs.difference == 0 and not pairs.deviation and pairs.p is None:
        is_same = all(_measured(own) == _measured(against) for own, against in pairing.both())
        return f"identical runs: {pairs.note}" if is_same else f"{pairing.metric} is {pairs.note}, other metrics differ"
    return pairs.note


def _measured(cell: Cell) -> dict[str, float]:
    return {name: value for name, value in cell.metrics.items() if name.startswith(("val_", "test_"))}


def _losses(pairing: Pairing) -> list[str]:
    sides = zip(("variant", "baseline"), pairing.lost(), strict=True)
    return [] if pairing.waiting() else [f"{who}: {what}" for who, what in sides if what]


def _doubts(one: Asked, answer: Answer) -> str:
    """What a verdict that was reached leaves to be said."""
    if answer.verdict == "equivalent" and answer.p_adjusted is not None and answer.p_adjusted <= ALPHA:
        return f"{one.direction()} by less than the margin"
    flipped = one.pairs.p_sign_flip
    if (
        answer.verdict in ("better", "worse")
        and flipped is not None
        and 2.0 ** (1 - one.pairs.seeds) <= ALPHA < flipped
    ):
        return f"a sign-flip test doesn't confirm it: p = {flipped:.2g}"
    return ""


def _needed(pairing: Pairing, pairs: Paired, answer: Answer) -> tuple[int | None, float | None, str]:
    """Further seeds and minutes of an undecided verdict, and the line that says so."""
    if answer.verdict != "undecided" or pairing.waiting() or any(pairing.lost()):
        return None, None, ""
    need = seeds_needed(pairs, pairing.margin, 1 - answer.confidence)
    if need is None:
        return None, None, ""
    size = "of the margin" if need.size == "margin" else "as large as the observed one"
    if need.seeds is None:
        return None, None, f"undecided: more than {MOST:,} more seeds, for a difference {size}"
    seconds = [_mean_seconds(side) for side in (pairing.own, pairing.baseline)]
    minutes = None if None in seconds else need.seeds * math.fsum(filter(None, seconds)) / 60
    count = f"{need.seeds} more seed{'' if need.seeds == 1 else 's'}"
    time = "" if minutes is None else f", {_about(minutes)}"
    return need.seeds, minutes, f"undecided: {count}{time}, for a difference {size}"


def _about(minutes: float) -> str:
    if minutes < 1:
        return "under a minute"
    if minutes < 120:
        return f"about {minutes:.0f} minute{'' if round(minutes) == 1 else 's'}"
    return f"about {minutes / 60:.0f} hours"


def _mean_seconds(cells: Seeds) -> float | None:
    """What a seed took."""
    found = [
        time
        for cell in cells.values()
        if cell.status == "completed" and (time := cell.costs.get("wall_s") or cell.result.get("wall_s")) is not None
    ]
    return math.fsum(found) / len(found) if found else None


def _detectable(values: Sequence[float], count: int) -> float | None:
    """What as many seeds find with Holm's worst multiplier, by the baseline's spread, if pairing takes nothing out."""
    if len(values) < 2:
        return None
    return detectable(len(values), ALPHA / max(count, 1), len(values)) * math.sqrt(2) * statistics.stdev(values)


def _values(cells: Seeds, metric: str) -> dict[int, float]:
    """The metric by seed, of cells that completed with a finite one."""
    found = {seed: cell.metrics.get(metric) for seed, cell in cells.items() if cell.status == "completed"}
    return {seed: value for seed, value in found.items() if value is not None and math.isfinite(value)}


def _lost(cells: Seeds, metric: str, other: Mapping[int, float]) -> str:
    """Seeds that only the other side has a value for, with what became of them: ``2 diverged``."""
    own = _values(cells, metric)
    states = [
        cell.status if cell.status != "completed" else f"without a finite {metric}"
        for seed, cell in cells.items()
        if seed in other and seed not in own
    ]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
