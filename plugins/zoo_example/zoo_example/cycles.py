"""Learning-rate schedules that repeat a cycle; two in one file, so ``zoo_components`` declares them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from zoo.contracts.schedule import Schedule


@dataclasses.dataclass(kw_only=True)
class CycleConfig(Schedule.Config):
    """Knobs of every cyclical schedule."""

    cycle_steps: int = 1000
    """Optimizer steps in a cycle; the first begins after the warm-up."""
    low: float = 0.1
    """Factor at the lowest point of a cycle; the highest is 1."""


class Cycle(Schedule):
    """What the cyclical schedules share: where in its cycle a step is."""

    Config = CycleConfig

    def __init__(self, config: Any, *, steps: int) -> None:
        super().__init__(config, steps=steps)
        if config.cycle_steps < 2:
            raise ValueError(f"cycle_steps is {config.cycle_steps}; a cycle has at least 2 steps")
        if not 0 <= config.low <= 1:
            raise ValueError(f"low is {config.low}; it must be from 0 to 1")

    def phase(self, step: int) -> float:
        """Part of the cycle that is over, from 0 to just below 1."""
        return (step - self.config.warmup_steps) % self.config.cycle_steps / self.config.cycle_steps

    def between(self, height: float) -> float:
        """The factor at a height from 0, the lowest, to 1, the highest."""
        return self.config.low + (1 - self.config.low) * height


class Triangular(Cycle):
    """Low to high to low, in straight lines. Smith 2015, "Cyclical learning rates", arXiv:1506.01186."""

    def after_warmup(self, step: int) -> float:
        """Factor: ``low`` at the ends of a cycle, 1 in its middle."""
        return self.between(1 - abs(2 * self.phase(step) - 1))


class WarmRestarts(Cycle):
    """High to low along a cosine, then back. Loshchilov and Hutter 2016, "SGDR", equation 5, arXiv:1608.03983."""

    def after_warmup(self, step: int) -> float:
        """Factor: 1 at the start of a cycle, near ``low`` at its end."""
        return self.between((1 + math.cos(math.pi * self.phase(step))) / 2)
