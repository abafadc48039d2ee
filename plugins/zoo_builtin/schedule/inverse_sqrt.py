"""Fall with the square root of the number of steps, without an end.

    factor = sqrt(warmup / n)    at the n-th step, counted from 1; 1 / sqrt(n) without a warm-up

Vaswani et al. 2017, "Attention is all you need" (arXiv 1706.03762), equation 3: its rate D^-0.5 min(n^-0.5,
n warmup^-1.5) is this one with a peak of 1 / sqrt(D warmup), 7.0e-4 for D = 512 and 4,000 steps. A run can be continued
to more steps as if it had always been longer. Cost: none.
"""

from __future__ import annotations

from typing import final

from zoo.contracts.schedule import Schedule

__all__ = ["InverseSqrt"]


@final
class InverseSqrt(Schedule):
    """The schedule of the original transformer."""

    def after_warmup(self, step: int) -> float:
        """Factor at a step."""
        return (max(1, self.config.warmup_steps) / (step + 1)) ** 0.5
