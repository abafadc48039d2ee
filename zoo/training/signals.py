"""Ctrl-C and SIGTERM: a flag that the training step shares with all ranks, so that they stop at the same step."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

_NOTE = b"\nstopping after this step, with the state saved; Ctrl-C again stops at once, without\n"


class Signals:
    """Handlers that only remember; they are in force between ``install`` and ``restore``."""

    def __init__(self) -> None:
        self._received: set[int] = set()
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Take over Ctrl-C and SIGTERM. Python lets only the main thread; elsewhere nothing changes."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Give them back."""
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)

    def flags(self) -> list[int]:
        """1 for each of Ctrl-C and SIGTERM that has come, else 0; the sums over ranks go to ``number``."""
        return [int(number in self._received) for number in (signal.SIGINT, signal.SIGTERM)]

    @staticmethod
    def number(interrupts: float, terminations: float) -> int:
        """The signal that some rank has received, or 0."""
        if terminations:
            return int(signal.SIGTERM)
        return int(signal.SIGINT) if interrupts else 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._received.add(number)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.write(2, _NOTE)  # a handler may interrupt a print, so it can't print itself
