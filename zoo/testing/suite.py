"""How checks are written, gathered and run.

A check is a function of one case: a component with certain knobs, at a certain length, with a certain position
scheme. It returns (perhaps a remark), or raises ``Failed`` or ``Skipped``. Cases run from the smallest up, so the
first that fails is the one worth reporting.
"""

from __future__ import annotations

import dataclasses
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from zoo.errors import UserError
from zoo.testing.report import Finding

_KIT = Path(__file__).resolve().parent


class Failed(Exception):
    """The component broke its contract; the message has the numbers."""


class Skipped(Exception):
    """The check doesn't apply; the message says why."""


class Case(Protocol):
    """One configuration of a component."""

    @property
    def label(self) -> str:
        """How a message calls it, for example ``kv_heads=1, rotated, T=5``."""


class Subject(Protocol):
    """A component under examination."""

    @property
    def offers(self) -> frozenset[str]:
        """Words for which it asks to be checked."""

    def cases(self, check: Check) -> Iterator[Any]:
        """The configurations to run a check on, smallest first.

        Raises:
            Skipped: the check doesn't apply to this component.
        """


S = TypeVar("S", bound=Subject)


@dataclasses.dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: what is checked, in plain words.
        function: takes a case.
        needs: words that the component must offer, else the check is skipped.
        tokens: lengths T to run at; empty means the subject's own choice.
        schemes: whether to run with each of the kit's position schemes, or without positions only.
        knobs: whether to run with other knobs than the defaults, too.
        full: whether it is run only when everything is asked for.
    """

    name: str
    function: Callable[[Any], str | None]
    needs: frozenset[str] = frozenset()
    tokens: tuple[int, ...] = ()
    schemes: bool = True
    knobs: bool = True
    full: bool = False


class Suite(Generic[S]):
    """The checks of one kind, in the order in which they were written.

    Args:
        kind: the kind of component.
        subject: makes the subject from ``(component class, seed, full)``.
    """

    def __init__(self, kind: str, subject: Callable[..., S]) -> None:
        self.kind, self.subject, self.checks = kind, subject, list[Check]()

    def check(
        self,
        name: str,
        *needs: str,
        tokens: tuple[int, ...] = (),
        schemes: bool = True,
        knobs: bool = True,
        full: bool = False,
    ) -> Callable[[Callable[[Any], str | None]], Callable[[Any], str | None]]:
        """Decorator that adds a function to the suite under a plain name."""

        def add(function: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
            self.checks.append(Check(name, function, frozenset(needs), tokens, schemes, knobs, full))
            return function

        return add

    def include(self, checks: Iterable[Check]) -> None:
        """Add checks that several kinds share."""
        self.checks += checks

    def chosen(self, full: bool) -> list[Check]:
        """The checks of a quick or a full examination."""
        return [check for check in self.checks if full or not check.full]

    def run(self, subject: S, full: bool = False) -> list[Finding]:
        """All findings; where the first check fails the others can't tell anything, and are skipped."""
        first, *others = self.chosen(full)
        findings = [run_check(first, subject)]
        if findings[0].status == "failed":
            reason = f"not run, because of {first.name!r}"
            return findings + [Finding(check.name, "skipped", reason) for check in others]
        return findings + [run_check(check, subject) for check in others]


def run_check(check: Check, subject: Subject) -> Finding:
    """Run one check on all of its cases, up to the first that fails."""
    if missing := check.needs - subject.offers:
        return Finding(check.name, "skipped", f"it doesn't offer {', '.join(sorted(missing))}")
    reason, remark, ran, label = "no case to run it on", None, False, ""
    try:
        with _conditions():
            for case in subject.cases(check):
                label = f"{case.label}: " if case.label else ""
                try:
                    remark = check.function(case) or remark
                    ran = True
                except Skipped as skipped:
                    reason = str(skipped)
    except Skipped as skipped:
        reason = str(skipped)
    except Exception as error:  # whatever a plugin raises is a finding about it
        return Finding(check.name, "failed", label + _account(error))
    return Finding(check.name, "passed", remark or "") if ran else Finding(check.name, "skipped", reason)


@contextmanager
def _conditions() -> Iterator[None]:
    """No warnings that a component logs, as the inputs are odd on purpose; one thread, as they are tiny."""
    level, threads = logging.root.manager.disable, torch.get_num_threads()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        logging.disable(level)
        torch.set_num_threads(threads)


def _account(error: Exception) -> str:
    if isinstance(error, Failed):
        return str(error)
    if isinstance(error, UserError):
        return f"refused: {error.what}"
    return f"raised {type(error).__name__}: {error}{_at(error)}"


def _at(error: BaseException) -> str:
    """`` (file:line)`` of the innermost frame outside the kit and outside libraries."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if "site-packages" not in path.parts and not path.resolve().is_relative_to(_KIT) and path.exists():
            return f" ({path.name}:{frame.lineno})"
    return ""
