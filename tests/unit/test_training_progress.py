"""The progress line: as wide as its terminal, and never a reason to stop."""

from __future__ import annotations

import io
import os

import pytest

from zoo.training.progress import Progress, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1


def test_the_line_fits_into_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((24, 10)))
    stream = Terminal()
    progress = Progress(10, stream=stream)
    progress.update(10, 1000, 1.5)
    line = stream.getvalue().removeprefix("\r").removesuffix("\x1b[K")
    assert line == "step 10/10 (100%)  loss"
    assert len(line) == 23


def test_a_reader_that_leaves_does_not_stop_training() -> None:
    class Closed(Terminal):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    progress = Progress(10, stream=Closed())
    progress.update(1, 100, 1.0)
    progress.note("step 1")
    progress.close()
    assert not progress.enabled


@pytest.mark.parametrize(("seconds", "text"), [(7, "0:07"), (750, "12:30"), (11_100, "3:05:00")])
def test_durations_read_as_a_clock(seconds: float, text: str) -> None:
    assert duration(seconds) == text
