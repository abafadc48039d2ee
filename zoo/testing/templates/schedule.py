"""Falls with the square root of the step after the warm-up; change what ``after_warmup`` says.

    factor(k) = sqrt(w / (k + 1)),  w warm-up steps (at least 1)

Vaswani et al. 2017, section 5.3, arXiv:1706.03762.
"""

from __future__ import annotations

from zoo.contracts.schedule import Schedule

__all__ = ["Mine"]


class Mine(Schedule):
    """A pure function of the optimizer step; ``self.steps`` is how many there will be."""

    def after_warmup(self, step: int) -> float:
        """Factor at a step past the warm-up."""
        return (max(1, self.config.warmup_steps) / (step + 1)) ** 0.5
