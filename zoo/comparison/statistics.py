"""Paired differences over seeds, and what they prove: Student's t, equivalence within a margin, Holm over the report.

    d_s = m_s(variant) - m_s(baseline)                      for each seed s of the n that both completed
    interval = mean(d) ± t(1 - a/2, n - 1) · sd(d) / √n     p: the two-sided paired t-test of mean(d) = 0
    p_equivalence = the larger p of the one-sided t-tests of mean(d) ≤ -margin and of mean(d) ≥ margin
    p_sign_flip = share of the 2ⁿ ways to sign the d_s for which |Σ ±d_s| ≥ |Σ d_s|

"Student" 1908, "The probable error of a mean"; Schuirmann 1987 (two one-sided tests); Fisher 1935, "The design of
experiments", section 21 (signs). A seed sets the order of the data and the initial values that the two share, so what
they have in common cancels in d_s.

**A report is one family of tests.** Holm 1979 orders all p and multiplies the r-th of M by M - r + 1. Where margins are
stated, M counts the tests of equivalence too. Of the two hypotheses about one variant on one task, "no difference" and
"a difference of the margin or more", one is false, so of m verdicts at most m hypotheses are true and no multiplier
need exceed m (Shaffer 1986, "Modified sequentially rejective multiple test procedures"). The probability that a report
holds any false verdict, of whatever kind, is then at most ALPHA. The two one-sided tests of one equivalence need no
correction between themselves, since both must reject.

**The interval is that of the verdict.** Its confidence is 1 - ALPHA / k, where k is the multiplier at which Holm
decided about it. Hence it leaves out 0 if and only if the difference is proven. Beside "equivalent" it is
1 - 2 ALPHA / k, which lies within the margin if and only if that is proven. Each covers the true difference with its
own confidence, or more.

**A second look is a second test.** To add seeds because a verdict is undecided, and to test again, gives chance another
go; ``benchmarks/comparison_errors.py`` measures how much.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

CONFIDENCE = 0.95
ALPHA = 0.05
"""Probability of a false verdict in a report, at most."""
ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""A spread of the differences below this share of the values is rounding: the seeds changed nothing."""
EXACT_FLIPS = 14
"""Pairs up to which all signs are tried."""
FLIPS = 4096
"""Random signs that are tried for more pairs."""

Better = Literal["lower", "higher"]
Verdict = Literal["better", "worse", "equivalent", "undecided"]
Array = NDArray[np.float64]


class Paired(NamedTuple):
    """Paired differences of one variant on one task; what can't be had is ``None``."""

    seeds: int
    """Pairs."""
    difference: float | None
    """Mean of variant - baseline; needs one pair."""
    deviation: float | None
    """Standard deviation of the differences; needs two pairs, and is missing where only rounding made it."""
    p: float | None
    """Two-sided, of no difference; none without a spread."""
    p_sign_flip: float | None
    """The same without any distribution; its least value with n pairs is 2 / 2ⁿ."""
    note: str
    """Why something is missing."""

    @property
    def error(self) -> float | None:
        """Standard error of the mean; ``None`` without a spread."""
        return self.deviation / math.sqrt(self.seeds) if self.deviation else None

    def interval(self, alpha: float) -> tuple[float, float] | tuple[None, None]:
        """Ends of the interval of confidence 1 - alpha."""
        if self.deviation == 0:
            return 0.0, 0.0
        if self.error is None or self.difference is None:
            return None, None
        half = -float(stdtrit(self.seeds - 1, alpha / 2)) * self.error
        return self.difference - half, self.difference + half

    def p_equivalence(self, margin: float) -> float | None:
        """Of a difference of the margin or more; none without a spread."""
        if self.error is None or self.difference is None:
            return None
        return float(stdtr(self.seeds - 1, (abs(self.difference) - margin) / self.error))


def paired(variant: Sequence[float], baseline: Sequence[float]) -> Paired:
    """Compare values of a variant with those of the baseline, seed by seed.

    Args:
        variant, baseline: finite values, as many of each, in the same order of seeds.
    """
    values, against = np.asarray(variant, np.float64), np.asarray(baseline, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        differences = values - against
        count = differences.size
        if count == 0:
            return Paired(0, None, None, None, None, "no seed that both completed")
        mean = float(differences.sum()) / count
        centred = differences - mean
        deviation = math.sqrt(float(centred @ centred) / (count - 1)) if count > 1 else 0.0
    if not math.isfinite(mean) or not math.isfinite(deviation):
        return Paired(count, None, None, None, None, "differences too large to be squared")
    if not differences.any():
        return Paired(count, 0.0, 0.0 if count > 1 else None, None, None, "equal to the last bit in every seed")
    if count == 1:
        return Paired(1, mean, None, None, None, "one seed: an interval needs at least 2")
    flipped = sign_flip(differences)
    if deviation <= ROUNDING * max(float(np.abs(values).max()), float(np.abs(against).max())):
        return Paired(count, mean, None, None, flipped, "no variance: every seed gives the same difference")
    p = 2 * float(stdtr(count - 1, -abs(mean) / (deviation / math.sqrt(count))))
    return Paired(count, mean, deviation, p, flipped, "")


def sign_flip(differences: Array) -> float:
    """Two-sided p of the permutation test that swaps variant and baseline within pairs."""
    signs = _all_signs(differences.size) if differences.size <= EXACT_FLIPS else _some_signs(differences.size)
    sums = np.abs(signs @ differences)
    least = abs(float(differences.sum())) - 1e-12 * float(np.abs(differences).sum())
    return float((sums >= least).mean())


@functools.lru_cache(maxsize=EXACT_FLIPS)
def _all_signs(count: int) -> Array:
    """Every choice of signs but for a common one, in rows."""
    bits = np.arange(2 ** (count - 1))[:, None] >> np.arange(count) & 1
    return 1.0 - 2.0 * bits.astype(np.float64)


def _some_signs(count: int) -> Array:
    """Random ones, always the same; the first row is as observed, without which p could be 0."""
    bits = np.unpackbits(np.random.default_rng(0).integers(0, 256, (FLIPS, -(-count // 8)), np.uint8), axis=1)
    signs = 1.0 - 2.0 * bits[:, :count].astype(np.float64)
    signs[0] = 1
    return signs


def noise_floor(values: Sequence[float]) -> float | None:
    """What a variant would differ by from itself: between two means over as many seeds, with probability 0.95 at most.

    Args:
        values: of the variant with different seeds; ``None`` comes of fewer than two.
    """
    count = len(values)
    if count < 2:
        return None
    spread = math.sqrt(2 / count) * statistics.stdev(values)
    return -float(stdtrit(count - 1, ALPHA / 2)) * spread


class Asked(NamedTuple):
    """One verdict that a report is asked for."""

    pairs: Paired
    better: Better
    """Direction of the metric."""
    margin: float | None = None
    """Differences below it don't matter; none said, no equivalence."""
    barred: frozenset[Verdict] = frozenset()
    """Verdicts that the pairs can't prove whatever they are, because runs are missing."""

    def direction(self) -> Verdict:
        """What the sign of the difference says."""
        if not self.pairs.difference:
            return "undecided"
        return "better" if (self.pairs.difference < 0) == (self.better == "lower") else "worse"

    def p_values(self) -> tuple[float, float | None]:
        """Of no difference, and of no equivalence where a margin is stated; 1 for what can't be proven."""
        difference = 1.0 if self.pairs.p is None or self.direction() in self.barred else self.pairs.p
        if self.margin is None:
            return difference, None
        equivalence = None if "equivalent" in self.barred else self.pairs.p_equivalence(self.margin)
        return difference, 1.0 if equivalence is None else equivalence


class Answer(NamedTuple):
    """What a report says about one variant on one task."""

    verdict: Verdict
    low: float | None
    """Lower end of the interval; needs two pairs, and a spread of their differences unless all are 0."""
    high: float | None
    """Upper end."""
    confidence: float
    """Of the interval."""
    p_adjusted: float | None
    """Of no difference, by Holm; none where it can't be proven."""
    p_equivalence: float | None
    """Of a difference of the margin or more; none without a margin."""
    p_equivalence_adjusted: float | None
    """The same by Holm."""


def judge(asked: Sequence[Asked], alpha: float = ALPHA) -> list[Answer]:
    """The verdicts of a report, all of them at once, in the order in which they are asked for."""
    found = [one.p_values() for one in asked]
    family = [p for pair in found for p in pair if p is not None]
    adjusted = iter(zip(*holm(family, len(asked), alpha), strict=True))
    return [
        _answer(one, next(adjusted), next(adjusted) if pair[1] is not None else None, alpha)
        for one, pair in zip(asked, found, strict=True)
    ]


def holm(p_values: Sequence[float], most_true: int, alpha: float = ALPHA) -> tuple[list[float], list[float]]:
    """Adjusted p, and the level at which each was decided; equal p fare alike.

    Args:
        p_values: of all hypotheses.
        most_true: how many of them can be true at once.
        alpha: probability of one or more false rejections, at most.
    """
    values = np.asarray(p_values, np.float64)
    ranked = np.sort(values)
    multipliers = np.minimum(most_true, values.size - np.arange(values.size))
    adjusted = np.minimum(1.0, np.maximum.accumulate(multipliers * ranked))
    places = np.searchsorted(ranked, values)
    rejected = int((adjusted <= alpha).sum())
    return adjusted[places].tolist(), (alpha / multipliers[np.minimum(places, rejected)]).tolist()


def _answer(
    one: Asked, difference: tuple[float, float], equivalence: tuple[float, float] | None, alpha: float
) -> Answer:
    """A verdict from adjusted p and level of both tests; what lies within the margin is equivalent first of all."""
    verdict: Verdict = "undecided"
    shown = difference[1]
    if equivalence is not None and equivalence[0] <= alpha:
        verdict, shown = "equivalent", 2 * equivalence[1]
    elif difference[0] <= alpha:
        verdict = one.direction()
    low, high = one.pairs.interval(shown)
    is_tested = one.pairs.p is not None and one.direction() not in one.barred
    return Answer(
        verdict,
        low,
        high,
        1 - shown,
        difference[0] if is_tested else None,
        None if one.margin is None else one.pairs.p_equivalence(one.margin),
        equivalence[0] if equivalence is not None and "equivalent" not in one.barred and one.pairs.error else None,
    )
