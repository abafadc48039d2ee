"""Warm up, stay at the peak, and fall in a last stretch.

    factor = 1                                             before the last ``decay`` part of the steps
           = 1 - (1 - final) (step - begin) / (steps - begin)    in it

Hu et al. 2024, "MiniCPM" (arXiv 2404.06395), section 4; the linear fall is the one of Hägele et al. 2024
(arXiv 2405.18392). A run can be continued from before the fall, to more steps, as if it had always been longer.
Cost: none.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

from zoo.contracts.schedule import Schedule

__all__ = ["WarmupStableDecay"]


@final
class WarmupStableDecay(Schedule):
    """A plateau with a linear end."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Schedule.Config):
        """How it ends."""

        decay: float = 0.2
        """Share of all steps in which it falls, 0 to 1."""
        final: float = 0.0
        """Factor that it falls towards; the step after the last would have it."""

    def __init__(self, config: Any, *, steps: int) -> None:
        super().__init__(config, steps=steps)
        if not 0 <= config.decay <= 1:
            raise ValueError(f"decay is {config.decay}; it is a share of all steps, from 0 to 1")
        self._begin = steps - round(config.decay * steps)
        if self._begin < config.warmup_steps:
            raise ValueError(
                f"warmup_steps ({config.warmup_steps}) reach into the fall, from step {self._begin} of {steps}"
            )

    def after_warmup(self, step: int) -> float:
        """Factor at a step; ``final`` past the end."""
        if step < self._begin:
            return 1.0
        done = min(1.0, (step - self._begin) / max(1, self.steps - self._begin))
        return 1 - (1 - self.config.final) * done
