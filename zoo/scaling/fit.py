"""The law that fits a ladder of runs, and how sure its constants are.

    r_i = log(exp(e) + exp(A' - a n_i) + exp(B' - b d_i)) - log L_i        n, d: log N and log D less their means
    least sum_i w_i huber(r_i / delta)   over e, A', B', a, b, from a grid of starts, with L-BFGS;   delta = 0.001

The loss, its delta, the logarithms and the method are those of Hoffmann et al. 2022, section 3.3, arXiv:2203.15556.
Three things differ. The residuals are divided by delta: a mean of squares near 1e-6 is an optimum to L-BFGS wherever
it starts, one of the two reasons for which their constants are off (Besiroglu et al. 2024, arXiv:2404.10102). Sizes and
data are centred, so that a factor and its exponent are nearly independent. The grid of starts is laid over the losses
of the ladder, not over those of models with billions of parameters.

Intervals: a Bayesian bootstrap over runs (Rubin 1981, "The Bayesian bootstrap"). Each draw weights the runs by a flat
Dirichlet distribution and fits anew; no draw is left with too few runs, as resampling a small ladder often is. The ends
are percentiles, set wider for few runs as Student's t is (Hesterberg 2015, "What teachers should know about the
bootstrap", section 4.3), with 5 fewer degrees of freedom than runs.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import norm
from scipy.stats import t as student_t

from zoo.errors import UserError
from zoo.scaling.law import Law

DELTA = 1e-3
CONSTANTS = 5
SIZES = AMOUNTS = 3
"""Sizes, and amounts of data, that there must be at least. With two sizes, L is known at two places of N up to what D
does to both alike; E, A and a would be three unknowns for two numbers."""
RUNS = SIZES * AMOUNTS
"""Runs that there must be at least: fewer leave next to nothing over to judge the noise by."""
FEW = 15
"""Runs under which intervals are said to be too narrow: of 24 simulated ladders of 9 runs, 18 to 21 were covered by
intervals at 95 %, for each of the exponents and a loss beyond the runs; of 24 with 15 runs 22 to 24."""
EXPONENTS = (0.01, 4.0)
"""Where exponents are sought."""
CONFIDENCE = 0.95
DRAWS = 1000

_START_EXPONENTS = (0.1, 0.25, 0.5, 1.0, 1.5)
_START_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
_DEEPEST = 10.0  # log of how far E, and how far 2 * _DEEPEST a term, may lie under the losses
_SINGULAR = 1e-5  # ratio of singular values under which constants can't be told apart


class Points(NamedTuple):
    """Runs of a ladder, as columns."""

    parameters: np.ndarray
    """N of each run."""
    tokens: np.ndarray
    """D of each."""
    losses: np.ndarray
    """L of each, in nats per token."""

    def without(self, left_out: np.ndarray) -> Points:
        """Those for which a column of booleans is false."""
        return Points(*(column[~left_out] for column in self))


@dataclasses.dataclass(frozen=True)
class Fit:
    """A fitted law.

    Attributes:
        law: the best one.
        points: what it was fitted to.
        draws: laws fitted to draws of the bootstrap.
        notes: what is doubtful about it.
    """

    law: Law
    points: Points
    draws: tuple[Law, ...]
    notes: tuple[str, ...]

    def interval(self, value: Callable[[Law], float]) -> tuple[float, float]:
        """Ends of the interval of something that a law says, such as a constant or a loss."""
        low, high = self._ends(np.array([value(law) for law in self.draws]))
        return float(low), float(high)

    def band(self, parameters: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the interval of the loss at several places."""
        low, high = self._ends(np.array([law.loss(parameters, tokens) for law in self.draws]))
        return low, high

    def _ends(self, values: np.ndarray) -> np.ndarray:
        tail = _tail(self.points.losses.size)
        return np.quantile(values, [tail, 1 - tail], axis=0)

    @property
    def residual(self) -> float:
        """Root of the mean square of the residuals of log L, with as many fewer runs as there are constants."""
        gaps = np.log(self.law.loss(self.points.parameters, self.points.tokens) / self.points.losses)
        return math.sqrt(float(gaps @ gaps) / max(1, gaps.size - CONSTANTS))


def fit_law(points: Points, *, draws: int = DRAWS, seed: int = 0) -> Fit:
    """Fit a law, and the laws of a bootstrap.

    Args:
        points: the runs.
        draws: of the bootstrap.
        seed: of its random numbers.

    Raises:
        UserError: runs that don't determine five constants.
    """
    check_points(points)
    problem = _Problem(points)
    best = problem.solve_anywhere()
    if problem.is_singular(best):
        raise UserError(
            "the size and the amount of data of the runs vary together, so what each does to the loss can't be told",
            fix="train some sizes on more than one amount of data",
        )
    laws = tuple(problem.law(theta) for theta in problem.bootstrap(best, draws, seed))
    return Fit(problem.law(best), points, laws, tuple(problem.notes(best)))


def check_points(points: Points) -> None:
    """Refuse runs from which no law can be fitted.

    Raises:
        UserError: too few runs, sizes or amounts of data, or losses that have no logarithm.
    """
    bad = [float(loss) for loss in points.losses if not (math.isfinite(loss) and loss > 0)]
    if bad:
        raise UserError(f"a loss of {bad[0]:g} can't be fitted", fix="fit a loss in nats, which is above 0")
    runs, sizes, amounts = points.losses.size, np.unique(points.parameters).size, np.unique(points.tokens).size
    if runs < RUNS or sizes < SIZES or amounts < AMOUNTS:
        raise UserError(
            f"five constants can't be fitted to {runs} runs of {sizes} sizes and {amounts} amounts of data; they need "
            f"{RUNS} runs of {SIZES} sizes and {AMOUNTS} amounts at least",
            fix="compare more sizes, or give them more different values of trainer.max_steps",
        )


def _tail(runs: int) -> float:
    """The share of draws beyond each end of an interval: less than 2.5 % for few runs."""
    freedom = max(1, runs - CONSTANTS)
    half = float(student_t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(runs / freedom)
    return float(norm.cdf(-half))


class _Problem:
    """The sum that is made least, with theta = (e, A', B', a, b)."""

    def __init__(self, points: Points) -> None:
        sizes, amounts = np.log(points.parameters), np.log(points.tokens)
        self.centre = float(sizes.mean()), float(amounts.mean())
        self.n, self.d = sizes - self.centre[0], amounts - self.centre[1]
        self.losses = np.log(points.losses)
        floor, top = float(self.losses.min()), float(self.losses.max())
        self.bounds = [(floor - _DEEPEST, floor), *[(floor - 2 * _DEEPEST, top + 1)] * 2, EXPONENTS, EXPONENTS]

    def law(self, theta: np.ndarray) -> Law:
        """The law of some theta."""
        e, size, data, a, b = map(float, theta)
        return Law(math.exp(e), math.exp(size + a * self.centre[0]), math.exp(data + b * self.centre[1]), a, b)

    def _terms(self, theta: np.ndarray) -> np.ndarray:
        """(..., 3, runs) logarithms of the three terms."""
        e, size, data, a, b = np.moveaxis(theta, -1, 0)[..., None]
        return np.stack(np.broadcast_arrays(e, size - a * self.n, data - b * self.d), axis=-2)

    def _derivatives(self, shares: np.ndarray) -> np.ndarray:
        """(5, runs) of the residuals by theta, from the shares of the three terms in the loss."""
        return np.stack([*shares, -self.n * shares[1], -self.d * shares[2]])

    def value(self, theta: np.ndarray) -> np.ndarray:
        """The sum with equal weights, for any number of thetas at once."""
        gaps = np.abs(logsumexp(self._terms(theta), axis=-2) - self.losses) / DELTA
        return np.where(gaps <= 1, gaps**2 / 2, gaps - 0.5).sum(axis=-1)

    def value_and_gradient(self, theta: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """The weighted sum and its derivatives; written out, as it is all that fitting takes time for."""
        e, size, data, a, b = theta
        in_size, in_data = size - a * self.n, data - b * self.d
        top = np.maximum(np.maximum(in_size, in_data), e)
        floor, in_size, in_data = np.exp(e - top), np.exp(in_size - top), np.exp(in_data - top)
        total = floor + in_size + in_data
        gaps = (top + np.log(total) - self.losses) / DELTA
        clipped = np.clip(gaps, -1, 1)
        value = weights @ (clipped * (gaps - clipped / 2))
        slope = weights * clipped / (DELTA * total)
        by_size, by_data = slope * in_size, slope * in_data
        return float(value), np.array(
            [slope @ floor, by_size.sum(), by_data.sum(), -(by_size @ self.n), -(by_data @ self.d)]
        )

    def solve(self, start: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
        """The optimum near a start, and the sum there."""
        found = minimize(
            self.value_and_gradient,
            start,
            args=(weights,),
            jac=True,
            method="L-BFGS-B",
            bounds=self.bounds,
            options={"maxiter": 2000, "maxfun": 4000, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-9},
        )
        return found.x, float(found.fun)

    def solve_anywhere(self) -> np.ndarray:
        """The best optimum of all starts."""
        weights = np.ones_like(self.losses)
        found = [self.solve(start, weights) for start in self.starts()]
        return min(found, key=lambda pair: pair[1])[0]

    def starts(self) -> Iterator[np.ndarray]:
        """For each pair of exponents the best of a grid over E and over how the rest is shared out."""
        floor, middle = np.exp(self.losses.min()), np.exp(np.median(self.losses))
        for a, b in itertools.product(_START_EXPONENTS, repeat=2):
            rest = [
                (np.log(floor * part), np.log((middle - floor * part) * share), np.log((middle - floor * part) * other))
                for part in _START_SHARES
                for share, other in zip(_START_SHARES, _START_SHARES[::-1], strict=True)
            ]
            thetas = np.array([[*terms, a, b] for terms in rest])
            yield thetas[self.value(thetas).argmin()]

    def is_singular(self, theta: np.ndarray) -> bool:
        """Whether two constants could change together without any residual telling."""
        terms = self._terms(theta)
        rows = self._derivatives(np.exp(terms - logsumexp(terms, axis=0)))
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        if not lengths.all():
            return True
        values = np.linalg.svd(rows / lengths, compute_uv=False)
        return bool(values[-1] < _SINGULAR * values[0])

    def bootstrap(self, best: np.ndarray, draws: int, seed: int) -> Iterator[np.ndarray]:
        """Optima for weights that are drawn anew each time."""
        generator = np.random.default_rng(seed)
        for _ in range(draws):
            weights = generator.exponential(size=self.losses.size)
            yield self.solve(best, weights * weights.size / weights.sum())[0]

    def notes(self, theta: np.ndarray) -> Iterator[str]:
        """What is doubtful about an optimum."""
        if self.losses.size < FEW:
            yield (
                f"with {self.losses.size} runs the intervals are too narrow: those of {RUNS} hold the truth in about "
                f"8 of 10 cases; {FEW} runs are enough"
            )
        for name, what, value in (("a", "size", theta[3]), ("b", "data", theta[4])):
            if value <= EXPONENTS[0] or value >= EXPONENTS[1]:
                low, high = EXPONENTS
                yield f"{name} is at the edge of {low:g} to {high:g}: the runs show no law in the {what}"
        if theta[0] <= self.bounds[0][0]:
            yield "E is 0 as far as the runs can tell: they don't show where the loss levels off"
