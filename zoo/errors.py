"""The two ways in which the zoo says no: the user's input is wrong, or a run came to a bad end."""

from __future__ import annotations

from collections.abc import Sequence


class UserError(Exception):
    """The user's input is wrong: one message that says what, where, and what to do. The command line exits 2.

    Args:
        what: the mistake in one sentence, with the names and numbers involved.
        where: the place, as ``file:line`` and key path, or the flag of the command line.
        fix: what to do about it, in the imperative.
    """

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """The message, a line for each of what, where and fix."""
        lines = [self.what]
        if self.where:
            lines.append(f"  at: {self.where}")
        if self.fix:
            lines.append(f"  do: {self.fix}")
        return lines


class RunFailed(Exception):
    """A run, a cell or a check ended badly through no fault of the input. The command line exits 1."""


class Diverged(RunFailed):
    """Training met a loss or gradient that is not finite. The command line exits 3.

    Args:
        step: the optimizer step, counted from 1, at which it happened.
        what: the quantity and its value, for example ``loss is nan``.
    """

    def __init__(self, step: int, what: str) -> None:
        self.step = step
        super().__init__(f"diverged at step {step}: {what}")


class Interrupted(RunFailed):
    """A signal ended the run after its state was saved. The command line exits 128 + the signal's number.

    Args:
        signal_number: 2 for Ctrl-C, 15 for SIGTERM.
        step: the number of optimizer steps done.
    """

    def __init__(self, signal_number: int, step: int) -> None:
        self.signal_number, self.step = signal_number, step
        super().__init__(f"interrupted after step {step}; state saved")


def counted(title: str, names: Sequence[str], most: int = 5) -> list[str]:
    """``7 missing (a, b, c, d, e, ...)``, a part of a message, or nothing where there are none."""
    shown = ", ".join(names[:most]) + (", ..." if len(names) > most else "")
    return [f"{len(names)} {title} ({shown})"] if names else []
