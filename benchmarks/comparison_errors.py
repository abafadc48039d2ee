"""How often verdicts of ``zoo compare`` are wrong, intervals cover and planned power is kept, in simulated comparisons.

    python benchmarks/comparison_errors.py                # about a minute of one core
    python benchmarks/comparison_errors.py --times 20000  # ten times as many comparisons of each kind

A run's metric is a seed's own part, which variant and baseline share, plus noise of its own. Everything is measured in
standard deviations of the paired differences; lower is better. What is simulated are the numbers only: they go through
the same functions as those of real runs, and ``tests/unit/test_comparison_errors.py`` holds the rates to their bounds.
"""

from __future__ import annotations

import argparse
import bisect
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from zoo.comparison.cells import Cell
from zoo.comparison.power import POWER, detectable, power_to_differ, seeds_needed
from zoo.comparison.statistics import ALPHA, Answer, Asked, judge, noise_floor, paired
from zoo.comparison.verdicts import Pairing

Generator = np.random.Generator

SHAPES: dict[str, Callable[[Generator, tuple[int, ...]], Any]] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "heavy tails: t(3)": lambda rng, size: rng.standard_t(3, size) / math.sqrt(3),
    "skewed: exponential": lambda rng, size: rng.exponential(size=size) - 1,
    "one run in ten fails": lambda rng, size: ((rng.random(size) < 0.1) - 0.1) * 3.0 + 0.44 * rng.normal(size=size),
    "right or wrong on 20 questions": lambda rng, size: (rng.binomial(20, 0.7, size) - 14) / math.sqrt(20 * 0.21),
}
"""Noise of a run, of mean 0 and variance 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """What is true of a comparison.

    Attributes:
        seeds: of every variant.
        effects: true difference of each variant from the baseline.
        margin: of equivalence, if any is stated.
        shape: of the noise of variants.
        baseline: of the noise of the baseline; the same unless said.
    """

    seeds: int
    effects: tuple[float, ...]
    margin: float | None = None
    shape: str = "normal"
    baseline: str | None = None

    def runs(self, times: int, rng: Generator, seeds: int | None = None) -> tuple[Any, Any]:
        """Values of the baseline, times x seeds, and of the variants, times x variants x seeds."""
        count = seeds or self.seeds
        shared = rng.normal(size=(times, 1, count))
        baseline = SHAPES[self.baseline or self.shape](rng, (times, 1, count)) * math.sqrt(0.5)
        variants = SHAPES[self.shape](rng, (times, len(self.effects), count)) * math.sqrt(0.5)
        return (shared + baseline)[:, 0], shared + variants + np.array(self.effects)[:, None]

    def is_false(self, answers: Sequence[Answer]) -> bool:
        """Whether any of the verdicts is."""
        return any(self._is_false(answer.verdict, effect) for answer, effect in zip(answers, self.effects, strict=True))

    def _is_false(self, verdict: str, effect: float) -> bool:
        if verdict == "equivalent":
            return self.margin is not None and abs(effect) >= self.margin
        return verdict in ("better", "worse") and (effect == 0 or (effect < 0) == (verdict == "worse"))


def compare(world: World, times: int, rng: Generator, *, is_corrected: bool = True) -> list[list[Answer]]:
    """Verdicts of simulated reports.

    Args:
        world: what is true.
        times: how many reports.
        rng: draws the runs.
        is_corrected: whether a report is judged as one family, as it should be, or each verdict by itself.
    """
    baselines, variants = world.runs(times, rng)
    found = []
    for baseline, rows in zip(baselines, variants, strict=True):
        asked = [Asked(paired(row, baseline), "lower", world.margin) for row in rows]
        found.append(judge(asked) if is_corrected else [judge([one])[0] for one in asked])
    return found


def false_rate(world: World, times: int, rng: Generator, *, is_corrected: bool = True) -> float:
    """Share of reports that hold a false verdict."""
    return _share(world.is_false(answers) for answers in compare(world, times, rng, is_corrected=is_corrected))


def coverage(world: World, times: int, rng: Generator) -> tuple[float, float]:
    """Share of intervals that hold the true difference, and the mean of what they promise."""
    rows = [row for answers in compare(world, times, rng) for row in zip(answers, world.effects, strict=True)]
    shown = [
        (answer.low <= effect <= answer.high, answer.confidence) for answer, effect in rows if answer.low is not None
    ]
    return _share(covers for covers, _ in shown), math.fsum(confidence for _, confidence in shown) / len(shown)


def verdict_rate(world: World, verdict: str, times: int, rng: Generator) -> float:
    """Share of reports that say this of the first variant."""
    return _share(answers[0].verdict == verdict for answers in compare(world, times, rng))


def flip_rate(world: World, times: int, rng: Generator) -> float:
    """Share of comparisons in which the sign-flip test alone would reject."""
    baselines, variants = world.runs(times, rng)
    p_values = (paired(rows[0], baseline).p_sign_flip for baseline, rows in zip(baselines, variants, strict=True))
    return _share(p is not None and p <= ALPHA for p in p_values)


def advised(
    world: World, times: int, rng: Generator, *, is_naive: bool = False, is_undecided: bool = False
) -> tuple[float, float, float]:
    """What comes of comparisons with as many seeds as a pilot of ``world.seeds`` was told.

    Args:
        world: with one variant.
        times: how many pilots.
        rng: draws the runs.
        is_naive: whether the pilot's deviation is taken for the true one, as ours isn't.
        is_undecided: whether pilots that led to a verdict are left out.

    Returns:
        Shares that were found to differ and to be equivalent, and the mean number of seeds in all.
    """
    differ, equal, sizes = [], [], []
    baselines, variants = world.runs(times, rng)
    for baseline, rows in zip(baselines, variants, strict=True):
        pilot = paired(rows[0], baseline)
        first = judge([Asked(pilot, "lower", world.margin)])[0]
        if is_undecided and first.verdict != "undecided":
            continue
        further = _naive_need(pilot, world.margin) if is_naive else _need(pilot, world.margin)
        more, (their_more,) = (part[0] for part in world.runs(1, rng, max(further, 1)))
        pairs = paired([*rows[0], *their_more[:further]], [*baseline, *more[:further]])
        last = judge([Asked(pairs, "lower", world.margin)])[0]
        differ.append(last.p_adjusted is not None and last.p_adjusted <= ALPHA)
        equal.append(last.verdict == "equivalent")
        sizes.append(pairs.seeds)
    return _share(differ), _share(equal), math.fsum(sizes) / len(sizes)


def _need(pilot: Any, margin: float | None) -> int:
    need = seeds_needed(pilot, margin, ALPHA)
    return 0 if need is None or need.size != "margin" or need.seeds is None else need.seeds


def _naive_need(pilot: Any, margin: float | None) -> int:
    assert margin is not None and pilot.deviation
    ratio = np.array(margin / pilot.deviation)
    sizes = range(pilot.seeds, 1000)
    return bisect.bisect_left(sizes, True, key=lambda seeds: power_to_differ(ratio, seeds, ALPHA) >= POWER)


def second_look(world: World, times: int, rng: Generator, alpha: float = ALPHA) -> float:
    """Share of false verdicts if undecided comparisons add the seeds they were told, 50 at most, and test again.

    Args:
        world: with one variant.
        times: how many comparisons.
        rng: draws the runs.
        alpha: level of each look.
    """
    baselines, variants = world.runs(times, rng)
    said = []
    for baseline, rows in zip(baselines, variants, strict=True):
        pairs = paired(rows[0], baseline)
        answer = judge([Asked(pairs, "lower")], alpha)[0]
        need = seeds_needed(pairs, None, alpha)
        if answer.verdict == "undecided" and need is not None:
            more, (their_more,) = (part[0] for part in world.runs(1, rng, min(need.seeds or 50, 50)))
            answer = judge([Asked(paired([*rows[0], *their_more], [*baseline, *more]), "lower")], alpha)[0]
        said.append(world.is_false([answer]))
    return _share(said)


def noise_rate(world: World, times: int, rng: Generator) -> float:
    """Share of times that the baseline, with other seeds, differs from itself by the noise floor at most."""
    (first, _), (second, _) = world.runs(times, rng), world.runs(times, rng)
    pairs = zip(first, second, strict=True)
    return _share(abs(one.mean() - other.mean()) <= (noise_floor(one.tolist()) or 0) for one, other in pairs)


def against_itself(values: Sequence[float], seeds: int) -> list[Answer]:
    """Verdicts about a variant that is compared to itself, each with seeds of its own, as far as values go."""
    starts = range(0, len(values) - 2 * seeds + 1, 2 * seeds)
    pairs = (paired(values[at : at + seeds], values[at + seeds : at + 2 * seeds]) for at in starts)
    return [judge([Asked(one, "lower")])[0] for one in pairs]


def survivors(world: World, times: int, rng: Generator) -> tuple[float, float]:
    """Rates of "better" if a variant diverges wherever it would do worse than the baseline by 0.5 or more.

    Returns:
        As verdicts are made, and if the seeds that are left counted as a comparison of their own.
    """
    baselines, variants = world.runs(times, rng)
    guarded, naive = [], []
    for baseline, rows in zip(baselines, variants, strict=True):
        ends = rows[0] - baseline < 0.5
        own = {seed: _cell("variant", seed, value, ends[seed]) for seed, value in enumerate(rows[0])}
        against = {seed: _cell("baseline", seed, value, True) for seed, value in enumerate(baseline)}
        asked = Pairing("task", "variant", "val_loss", "lower", world.margin, own, against).asked()
        guarded.append(judge([asked])[0].verdict == "better")
        naive.append(judge([asked._replace(barred=frozenset())])[0].verdict == "better")
    return _share(guarded), _share(naive)


def _cell(variant: str, seed: int, value: float, ends: bool) -> Cell:
    result = {"metrics": {"val_loss": float(value)}} if ends else {}
    return Cell(variant, "task", seed, status="completed" if ends else "diverged", result=result)


def _share(said: Iterable[bool]) -> float:
    found = [*said]
    return sum(found) / len(found)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description="error rates, coverage and power of simulated comparisons")
    parser.add_argument("--times", type=int, default=2000, help="comparisons of each kind")
    times = parser.parse_args().times
    rng = np.random.default_rng(20260101)
    error = 1.96 * math.sqrt(ALPHA * (1 - ALPHA) / times)
    print(f"{times:,} simulated comparisons each; a rate of 5 % is known to ±{100 * error:.1f} points.")
    _print_null(times, rng)
    _print_shapes(times, rng)
    _print_equivalence(times, rng)
    _print_power(times, rng)
    _print_rest(times, rng)


def _print_null(times: int, rng: Generator) -> None:
    print("\nReports with a false verdict when no variant differs, and coverage of the intervals:\n")
    print("| seeds | variants | as it is | each verdict by itself | coverage | promised |\n|---|---|---|---|---|---|")
    for seeds in (2, 3, 5, 10):
        for count in (1, 3, 11):
            world = World(seeds=seeds, effects=(0.0,) * count)
            rates = [false_rate(world, times, rng, is_corrected=is_corrected) for is_corrected in (True, False)]
            print(f"| {seeds} | {count} | {_percents(*rates, *coverage(world, times, rng))} |")


def _print_shapes(times: int, rng: Generator) -> None:
    print("\nThe same for other noise, 3 variants; the sign-flip test with 1 variant, where it can reject at all:\n")
    print("| noise | 3 seeds | 5 seeds | 10 seeds | sign-flip, 10 seeds |\n|---|---|---|---|---|")
    both = [(shape, shape) for shape in SHAPES]
    for shape, baseline in [*both, ("skewed: exponential", "normal"), ("one run in ten fails", "normal")]:
        worlds = [
            World(seeds=seeds, effects=(0.0,) * count, shape=shape, baseline=baseline)
            for seeds, count in ((3, 3), (5, 3), (10, 3), (10, 1))
        ]
        rates = [*(false_rate(world, times, rng) for world in worlds[:3]), flip_rate(worlds[3], times, rng)]
        print(f"| {shape}{'' if shape == baseline else '; baseline normal'} | {_percents(*rates)} |")


def _print_equivalence(times: int, rng: Generator) -> None:
    print('\n"Equivalent" where the true difference is the margin (false), half of it, and 0, 1 variant; and reports')
    print("with any false verdict where 3 variants differ by the margin and 3 by nothing:\n")
    print("| seeds | margin | at the margin | at half | at 0 | 6 variants |\n|---|---|---|---|---|---|")
    for seeds in (3, 5, 10, 20):
        for margin in (1.0, 2.0):
            worlds = [World(seeds=seeds, effects=(share * margin,), margin=margin) for share in (1, 0.5, 0)]
            rates = [verdict_rate(world, "equivalent", times, rng) for world in worlds]
            mixed = World(seeds=seeds, effects=(margin,) * 3 + (0.0,) * 3, margin=margin)
            print(f"| {seeds} | {margin:g} | {_percents(*rates, false_rate(mixed, times, rng))} |")


def _print_power(times: int, rng: Generator) -> None:
    print(f"\nThe planner: a difference that is to be found with probability {POWER}, and how often it is found:\n")
    print("| seeds | verdicts | difference | found |\n|---|---|---|---|")
    for seeds in (2, 3, 5, 10):
        for count in (1, 4, 12):
            size = detectable(seeds, ALPHA / count)
            world = World(seeds=seeds, effects=(size,) + (0.0,) * (count - 1))
            print(f"| {seeds} | {count} | {size:.3g} | {_percents(verdict_rate(world, 'worse', times, rng))} |")
    print(
        "\nAfter a pilot, margin 0.5: found to differ where the truth is the margin, equivalent where it is 0; and the"
    )
    print("first if the pilot's spread were taken for the true one:\n")
    print("| pilot | seeds in all | differ | of undecided pilots | equivalent | naive | its seeds |")
    print("|---|---|---|---|---|---|---|")
    times //= 5  # each pilot is planned for, which takes longer than to judge it
    for seeds in (3, 5, 10):
        there, nowhere = (World(seeds=seeds, effects=(effect,), margin=0.5) for effect in (0.5, 0.0))
        differ, _, size = advised(there, times, rng)
        later = advised(there, times, rng, is_undecided=True)[0]
        equal = advised(nowhere, times, rng)[1]
        naive, _, fewer = advised(there, times, rng, is_naive=True)
        print(f"| {seeds} | {size:.0f} | {_percents(differ, later, equal, naive)} | {fewer:.0f} |")


def _print_rest(times: int, rng: Generator) -> None:
    print("\nFalse verdicts if an undecided comparison adds the seeds that it was told and tests again:\n")
    print("| seeds at first | after one look | after two | after two at half the level each |\n|---|---|---|---|")
    for seeds in (3, 5, 10):
        world = World(seeds=seeds, effects=(0.0,))
        looks = [second_look(world, times, rng, level) for level in (ALPHA, ALPHA / 2)]
        print(f"| {seeds} | {_percents(false_rate(world, times, rng), *looks)} |")
    print("\nThe baseline with other seeds differs from itself by the noise floor at most:\n")
    print("| seeds | share |\n|---|---|")
    for seeds in (2, 3, 10):
        print(f"| {seeds} | {_percents(noise_rate(World(seeds=seeds, effects=()), times, rng))} |")
    print('\n"Better" for a variant that diverges wherever it would do badly:\n')
    print("| seeds | true difference | as it is | if the seeds that are left counted |\n|---|---|---|---|")
    for seeds in (5, 10):
        for effect in (0.0, 0.5):
            print(
                f"| {seeds} | {effect} | {_percents(*survivors(World(seeds=seeds, effects=(effect,)), times, rng))} |"
            )


def _percents(*rates: float) -> str:
    return " | ".join(f"{100 * rate:.1f} %" for rate in rates)


if __name__ == "__main__":
    main()
