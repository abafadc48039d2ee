"""Conformance of a learning-rate schedule: a pure function of the optimizer step."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from zoo.testing.modules import documented_config
from zoo.testing.suite import Check, Failed, Suite
from zoo.testing.variants import Variant, variants


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleCase:
    """One schedule with certain knobs over a number of steps."""

    component: type[Any]
    variant: Variant
    steps: int
    warmup: int

    @property
    def label(self) -> str:
        """``steps=10, warmup_steps=3``."""
        return ", ".join(
            part for part in (self.variant.label, f"steps={self.steps}, warmup_steps={self.warmup}") if part
        )

    def is_possible(self) -> bool:
        """Whether the schedule takes its knobs."""
        try:
            self.make()
        except ValueError:
            return False
        return True

    def make(self) -> Any:
        """The schedule."""
        return self.component(self.component.Config(**self.variant.knobs, warmup_steps=self.warmup), steps=self.steps)


class ScheduleSubject:
    """A schedule class."""

    offers: frozenset[str] = frozenset()

    def __init__(self, component: type[Any], **others: Any) -> None:
        self.component = component

    def cases(self, check: Check) -> Iterator[ScheduleCase]:
        """One step, a few, many; without warm-up, with some, and with nothing else if that isn't refused."""
        for variant in variants(self.component, lambda variant: True):
            for steps, warmup in ((1, 0), (1, 1), (10, 3), (10, 10), (1000, 100)):
                case = ScheduleCase(component=self.component, variant=variant, steps=steps, warmup=warmup)
                if warmup < steps or case.is_possible():
                    yield case


SUITE = Suite("schedule", ScheduleSubject)


@SUITE.check("a finite factor from 0 to 1 at every step")
def factors(case: ScheduleCase) -> str:
    """The factor multiplies the peak learning rate, so it is never negative, and never above 1."""
    values = [case.make().factor(step) for step in range(case.steps)]
    for step, value in enumerate(values):
        if not (isinstance(value, float | int) and math.isfinite(value) and 0 <= value <= 1):
            raise Failed(f"factor of step {step} is {value!r}")
    if max(values) <= 0:
        raise Failed("every factor is 0, so nothing would be learned")
    return f"{case.label}: from {values[0]:.3g} to {values[-1]:.3g}"


@SUITE.check("a pure function of the step")
def pure(case: ScheduleCase) -> None:
    """Asked in another order, twice, or by another object it gives the same."""
    schedule = case.make()
    forwards = [schedule.factor(step) for step in range(case.steps)]
    backwards = [schedule.factor(step) for step in reversed(range(case.steps))]
    if forwards != backwards[::-1] or forwards != [case.make().factor(step) for step in range(case.steps)]:
        raise Failed("another order of questions gives other factors")


@SUITE.check("warms up linearly")
def warms_up(case: ScheduleCase) -> None:
    """Step k of w warm-up steps has the factor (k + 1) / w."""
    for step in range(case.warmup):
        got, want = case.make().factor(step), (step + 1) / case.warmup
        if not math.isclose(got, want, rel_tol=1e-12):
            raise Failed(f"factor of step {step} is {got}, the warm-up asks for {want}")


@SUITE.check("refuses a warm-up longer than the training")
def refuses_long_warmup(case: ScheduleCase) -> None:
    """More warm-up steps than steps is a ValueError."""
    if dataclasses.replace(case, warmup=case.steps + 1).is_possible():
        raise Failed(f"took a warm-up of {case.steps + 1} steps out of {case.steps}")


@SUITE.check("every knob has a type, a default and a docstring")
def documented(case: ScheduleCase) -> None:
    """What the tables of the docs are made of."""
    documented_config(case)
