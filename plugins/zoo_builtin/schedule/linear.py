"""A straight line from the peak down to a fraction of it.

    factor = 1 - (1 - final) (step - warmup) / (steps - warmup)

With ``final: 0`` it is BERT's (Devlin et al. 2019, arXiv 1810.04805, appendix A.2). Cost: none.
"""

from __future__ import annotations

import dataclasses
from typing import final

from zoo.contracts.schedule import Schedule

__all__ = ["Linear"]


@final
class Linear(Schedule):
    """Linear decay over all steps after the warm-up."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Schedule.Config):
        """Where it ends."""

        final: float = 0.0
        """Factor that it falls towards; the step after the last would have it."""

    def after_warmup(self, step: int) -> float:
        """Factor at a step; ``final`` past the end."""
        warmup = self.config.warmup_steps
        done = min(1.0, (step - warmup) / max(1, self.steps - warmup))
        return 1 - (1 - self.config.final) * done
