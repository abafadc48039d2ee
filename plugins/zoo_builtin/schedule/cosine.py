"""Half a cosine from the peak down to a fraction of it.

    factor = final + (1 - final) (1 + cos(pi x)) / 2,    x = (step - warmup) / (steps - warmup)

Loshchilov and Hutter 2017, "SGDR: stochastic gradient descent with warm restarts" (arXiv 1608.03983), without
the restarts; ``final: 0.1`` is GPT-3's. Cost: none.
"""

from __future__ import annotations

import dataclasses
import math
from typing import final

from zoo.contracts.schedule import Schedule

__all__ = ["Cosine"]


@final
class Cosine(Schedule):
    """Cosine decay over all steps after the warm-up."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Schedule.Config):
        """Where it ends."""

        final: float = 0.1
        """Factor that it falls towards; the step after the last would have it."""

    def after_warmup(self, step: int) -> float:
        """Factor at a step; ``final`` past the end."""
        warmup = self.config.warmup_steps
        done = min(1.0, (step - warmup) / max(1, self.steps - warmup))
        return self.config.final + (1 - self.config.final) * (1 + math.cos(math.pi * done)) / 2
