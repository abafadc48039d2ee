"""metrics.csv, the progress line and the signal flags."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path

import pytest

from zoo.errors import RunFailed
from zoo.training import progress as progress_module
from zoo.training.metrics import MetricsFile, columns, read_metrics
from zoo.training.progress import Progress, duration
from zoo.training.signals import Signals


def row(step: int, **values: float) -> dict[str, float]:
    return {"step": step, "tokens": 8.0 * step, "wall_s": 0.1, "lr": 1e-3, "grad_norm": 1 / 3, **values}


def test_columns_are_those_of_the_task_after_the_fixed_ones() -> None:
    assert columns(["loss", "accuracy"]) == [
        *("step", "tokens", "wall_s", "lr", "grad_norm"),
        *("train_loss", "train_accuracy", "val_loss", "val_accuracy"),
    ]


def test_rows_come_back_to_the_last_bit_and_what_was_not_measured_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    file = MetricsFile(path, columns(["loss"]), before=0)
    file.write(row(1, train_loss=2 / 3))
    file.write(row(2, train_loss=0.5, val_loss=1e-300))
    assert read_metrics(path) == [row(1, train_loss=2 / 3), row(2, train_loss=0.5, val_loss=1e-300)]
    assert path.read_text().splitlines()[1].startswith("1,8,0.1,0.001,0.333")


def test_a_resumed_run_drops_the_rows_that_it_will_write_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    file = MetricsFile(path, columns(["loss"]), before=0)
    for step in range(1, 6):
        file.write(row(step))
    file.close()
    path.write_text(path.read_text() + "6,48,0.1,0.0")  # cut off by a crash
    file = MetricsFile(path, columns(["loss"]), before=4)
    file.write(row(4))
    assert [found["step"] for found in read_metrics(path)] == [1, 2, 3, 4]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_message(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.csv", columns([]), before=0)
    file.close()
    file._file = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115
    with pytest.raises(RunFailed, match=r"can't write .*metrics\.csv: No space left on device"):
        file.write(row(1))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_line_tells_loss_speed_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 100.05, 102.0, 102.01])
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: next(clock))
    stream = Terminal()
    bar = Progress(1000, stream=stream)
    for step in (1, 2, 11, 12):
        bar.update(step, step * 1000, 3.25)
    lines = stream.getvalue().split("\r")[1:]
    assert lines == [
        "step 1/1,000 (0%)  loss 3.2500\x1b[K",
        "step 11/1,000 (1%)  loss 3.2500  5,000 tokens/s  3:18 left\x1b[K",
    ]  # steps 2 and 12 came within a tenth of a second


def test_without_a_terminal_only_notes_appear() -> None:
    stream = io.StringIO()
    bar = Progress(10, stream=stream)
    bar.update(10, 10, 1.0)
    bar.note("validated")
    bar.close()
    Progress(10, enabled=False, stream=stream).note("from another rank")
    assert stream.getvalue() == "validated\n"


@pytest.mark.parametrize(("seconds", "text"), [(7.4, "0:07"), (750, "12:30"), (11100, "3:05:00")])
def test_durations_are_written_like_a_clock(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_signal_sets_a_flag_and_the_handlers_go_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    signals = Signals()
    signals.install()
    try:
        assert signals.flags() == [0, 0]
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.flags() == [0, 1]
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.flags() == [1, 1]
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL  # the second Ctrl-C kills
    finally:
        signals.restore()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_ranks_agree_on_the_signal() -> None:
    assert [Signals.number(0, 0), Signals.number(2, 0), Signals.number(1, 1)] == [0, signal.SIGINT, signal.SIGTERM]
