"""Contract of a learning-rate schedule: a pure function of the optimizer step."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any

from zoo.config import Part


class Schedule(Part, ABC):
    """Factor on the learning rate at each optimizer step. Made as ``Schedule(config, steps=total)``."""

    @dataclasses.dataclass(kw_only=True)
    class Config:
        """Knobs that every schedule has."""

        warmup_steps: int = 0
        """Optimizer steps of linear warm-up: step k of w (from 0) has the factor (k + 1) / w."""

    def __init__(self, config: Any, *, steps: int) -> None:
        if config.warmup_steps < 0 or config.warmup_steps > steps:
            raise ValueError(
                f"warmup_steps is {config.warmup_steps}; it must be from 0 to max_steps = {steps} "
                "(for a short trial: schedule.warmup_steps=0)"
            )
        self.config, self.steps = config, steps

    def factor(self, step: int) -> float:
        """Factor of the learning rate used by optimizer step ``step``, counted from 0."""
        if step < self.config.warmup_steps:
            return (step + 1) / self.config.warmup_steps
        return self.after_warmup(step)

    @abstractmethod
    def after_warmup(self, step: int) -> float:
        """Factor at a step past the warm-up, ``warmup_steps <= step``."""
