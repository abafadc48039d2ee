"""A line on standard error: where training stands, how fast it is, how long it will take."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from typing import TextIO

REFRESH = 0.1
"""Seconds from one refresh to the next: the eye takes in no more, and each costs the loop time."""

_WINDOW = 50  # refreshes that speed is averaged over


class Progress:
    """Rewrites one line of a terminal; where there is no terminal, only notes appear.

    Args:
        steps: number of the last step.
        enabled: whether anything is written at all: on one rank only.
        stream: where to.
    """

    def __init__(self, steps: int, *, enabled: bool = True, stream: TextIO | None = None) -> None:
        self.steps, self.enabled, self.stream = steps, enabled, stream or sys.stderr
        self.live = enabled and self.stream.isatty()
        self._marks: deque[tuple[float, int, int]] = deque(maxlen=_WINDOW)
        self._next = 0.0

    def update(self, step: int, tokens: int, loss: float) -> None:
        """Show a step, unless the last refresh was a moment ago.

        Args:
            step: steps done.
            tokens: tokens seen in all of them.
            loss: of that step, per target.
        """
        now = time.monotonic()
        if not self.live or (now < self._next and step < self.steps):
            return
        self._next = now + REFRESH
        self._marks.append((now, step, tokens))
        self._write(f"\r{self._line(step, loss)[: columns(self.stream) - 1]}\x1b[K")

    def note(self, text: str) -> None:
        """Write a line that stays."""
        if self.enabled:
            self._write(f"\r\x1b[K{text}\n" if self.live else f"{text}\n")

    def close(self) -> None:
        """Leave the last state standing."""
        if self.live and self._marks:
            self._write("\n")

    def _line(self, step: int, loss: float) -> str:
        text = f"step {step:,}/{self.steps:,} ({step / self.steps:.0%})  loss {loss:.4f}"
        (then, first, tokens_then), (now, last, tokens_now) = self._marks[0], self._marks[-1]
        if last > first:
            left = (self.steps - step) * (now - then) / (last - first)
            text += f"  {(tokens_now - tokens_then) / (now - then):,.0f} tokens/s  {duration(left)} left"
        return text

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except OSError:  # the reader of a pipe has left; that is no reason to stop training
            self.enabled = self.live = False


def columns(stream: TextIO) -> int:
    """Width of a terminal; a line that is longer would wrap, and each refresh would begin a new one."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def duration(seconds: float) -> str:
    """``0:07``, ``12:30`` or ``3:05:00``."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
