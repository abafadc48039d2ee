"""The best score to be expected of a tuning budget: what n tries would have found, on average.

    E[best of n] = Σ_i v_(i) · ((i / B)ⁿ - ((i - 1) / B)ⁿ)      v_(1) … v_(B): the B scores, the best one last

the expected maximum of n draws, with replacement, from the empirical distribution: Dodge et al. 2019, "Show your work",
arXiv:1909.03004, section 3. For n near B it is too low on average (Tang et al. 2020, arXiv:2004.13705), and the
bootstrap's interval, which can't reach beyond the best score seen, too narrow: compare at budgets well below B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zoo.comparison.statistics import CONFIDENCE, Array, Better

RESAMPLES = 1000


class Budget(NamedTuple):
    """Expected best score, by the number of tries: 1 to B."""

    expected: Array
    low: Array
    """Lower end of the percentile bootstrap's interval."""
    high: Array
    """Upper end."""


def expected_best(scores: Sequence[float | None], better: Better) -> Budget:
    """What each budget up to the one that was spent would have found.

    Args:
        scores: one for each try; of one that diverged or failed ``None`` or a number that isn't finite. It is part of
            the budget, and counts as no better than the worst of the others.
        better: which way is better.

    Returns:
        Arrays as long as ``scores``; empty ones where no try has a score.
    """
    sign = 1 if better == "higher" else -1
    finite = [sign * score for score in scores if score is not None and math.isfinite(score)]
    if not finite:
        return Budget(*(np.empty(0) for _ in range(3)))
    values = np.array(finite + [min(finite)] * (len(scores) - len(finite)), np.float64)
    count = values.size
    tries = np.arange(1, count + 1)
    reached = (np.arange(count + 1) / count)[:, None] ** tries
    weights = np.diff(reached, axis=0)  # i-th lowest score x number of tries
    drawn = np.random.default_rng(0).integers(0, count, (RESAMPLES, count))
    resampled = np.sort(values[drawn], axis=1) @ weights
    ends = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    low, high = ends if sign == 1 else -ends[::-1]
    return Budget(sign * (np.sort(values) @ weights), low, high)
