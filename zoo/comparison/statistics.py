"""Paired differences over seeds, with Student's t-interval.

    d_s = m_s(variant) - m_s(baseline)                    for each seed s of the n that both completed
    interval = mean(d) ± t(0.975, n - 1) · sd(d) / √n     p: the two-sided paired t-test of mean(d) = 0

"Student" 1908, "The probable error of a mean". A seed sets the order of the data and the initial values that the two
share, so what they have in common cancels in d_s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import t as student_t

CONFIDENCE = 0.95
ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""A spread of the differences below this share of the values is rounding: the seeds changed nothing."""

Verdict = Literal["better", "worse", "undecided"]


class Paired(NamedTuple):
    """Mean of the paired differences; what can't be had is ``None``."""

    seeds: int
    """Pairs."""
    difference: float | None
    """Mean of variant - baseline; needs one pair."""
    low: float | None
    """Lower end of the interval; needs two pairs, and a spread of their differences unless all are 0."""
    high: float | None
    """Upper end."""
    p: float | None
    """Two-sided, of no difference; none without a spread."""
    note: str
    """Why something is missing."""


def paired(variant: Sequence[float], baseline: Sequence[float]) -> Paired:
    """Compare values of a variant with those of the baseline, seed by seed.

    Args:
        variant, baseline: finite values, as many of each, in the same order of seeds.
    """
    values, against = np.asarray(variant, np.float64), np.asarray(baseline, np.float64)
    differences = values - against
    count = differences.size
    if count == 0:
        return Paired(0, None, None, None, None, "no seed that both completed")
    mean = float(differences.mean())
    if not differences.any():
        bound = 0.0 if count > 1 else None
        return Paired(count, 0.0, bound, bound, None, "identical runs: equal to the last bit in every seed")
    if count == 1:
        return Paired(1, mean, None, None, None, "one seed: an interval needs at least 2")
    deviation = float(differences.std(ddof=1))
    if deviation <= ROUNDING * float(np.abs([values, against]).max()):
        return Paired(count, mean, None, None, None, "no variance: every seed gives the same difference")
    error = deviation / math.sqrt(count)
    half = error * float(student_t.ppf((1 + CONFIDENCE) / 2, count - 1))
    p = 2 * float(student_t.sf(abs(mean) / error, count - 1))
    return Paired(count, mean, mean - half, mean + half, p, "")


def decide(low: float | None, high: float | None, better: Literal["lower", "higher"]) -> Verdict:
    """What an interval of differences says about the variant; an interval that holds 0 says nothing."""
    if low is None or high is None or low <= 0 <= high:
        return "undecided"
    return "better" if (high < 0) == (better == "lower") else "worse"
