"""A grid on a terminal while it runs: a table that is drawn again and again, or plain lines where there is no terminal.

What is shown comes from a ``Board``, so that ``zoo compare --watch`` shows the same for a grid of another process.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from zoo.comparison.board import Board, Running, newest_plan
from zoo.comparison.cells import outcome
from zoo.comparison.folder import CompareFolder
from zoo.errors import Interrupted, UserError
from zoo.recipe.node import shown
from zoo.training.progress import duration

if TYPE_CHECKING:
    from zoo.comparison.index import Record

REFRESH = 0.5
"""Seconds from one drawing to the next."""
ROWS = 20
"""Running cells that are shown."""
FAILURES = 3
"""Failed cells that are shown, the last ones."""
WATCH = 1.0
"""Seconds from one look at the folder of another process to the next."""


class LiveGrid:
    """Tells how a comparison goes, on standard error.

    Args:
        console: where to; by default standard error.
        lines: whether each end of a run is a line where there is no terminal.

    Attributes:
        folder: of the comparison, once it is known.
    """

    def __init__(self, console: Console | None = None, *, lines: bool = True) -> None:
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self.lines = lines
        self.folder: Path | None = None
        self._live: Live | None = None
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if isinstance(error, Interrupted) and self.folder is not None:
            self.note(f"to go on, give the same command and --run {shlex.quote(shown(self.folder))}")

    def note(self, text: str) -> None:
        """A line that stays."""
        self.console.print(Text(text))

    def open(self, board: Board) -> None:
        """Name the folder, and how much there is to do."""
        self.folder = board.folder.path
        ended, waiting = len(board.known), len(board.waiting)
        self.note(f"{shown(self.folder)}: {waiting} to run" + (f", {ended} there already" if ended else ""))
        if self.console.is_terminal and waiting and self._live is None:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()

    def look(self, board: Board) -> None:
        """Draw the table, unless that was done a moment ago."""
        now = time.monotonic()
        if self._live is not None and now >= self._next:
            self._next = now + REFRESH
            self._live.update(picture(board, self.console.height), refresh=True)

    def end(self, board: Board, record: Record) -> None:
        """How a run ended: on a terminal those that didn't complete."""
        is_bad = record.status in ("failed", "invalid", "diverged")
        if is_bad if self._live is not None else self.lines:
            done, total = len(board.jobs) - len(board.waiting), len(board.jobs)
            self.note(f"{done}/{total} {board.jobs[record.address].title}: {_told(record)}")


def _told(record: Record) -> str:
    metrics = record.result.get("metrics", {})
    measured = [f"{name} {value:.4f}" for name, value in metrics.items() if name.startswith("val_")]
    return outcome(record.status, record.reason.partition("\n")[0] or next(iter(measured), ""))


def picture(board: Board, height: int) -> Group:
    """The running cells, the last failures, and a line of sums."""
    running = board.running()
    rows = max(1, min(ROWS, height - FAILURES - 4))
    parts: list[Table | Text] = [_table(running[:rows])] if running else []
    if len(running) > rows:
        parts.append(Text(f"and {len(running) - rows} more"))
    for address, reason in [*board.failures.items()][-FAILURES:]:
        text = f"{board.jobs[address].title}: failed: {reason.partition(chr(10))[0]}"
        parts.append(Text(text, style="red", overflow="ellipsis", no_wrap=True))
    return Group(*parts, Text(summary(board, running), overflow="ellipsis", no_wrap=True))


def _table(running: Sequence[Running]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("cell", overflow="ellipsis", no_wrap=True)
    for name in ("step", "loss", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in running:
        loss = "" if one.loss is None else f"{one.loss:.4f}"
        step = f"{one.step:,}/{one.steps:,}" if one.step else "starting"
        table.add_row(Text(one.job.title), step, loss, duration(one.seconds))
    return table


def summary(board: Board, running: Sequence[Running]) -> str:
    """``12 of 96 done, 2 running, 1 failed, about 12:30 left``."""
    parts = [f"{len(board.jobs) - len(board.waiting):,} of {len(board.jobs):,} done", f"{len(running)} running"]
    told = ("diverged", "failed", "invalid", "interrupted")
    parts += [f"{board.counts[status]:,} {status}" for status in told if board.counts[status]]
    left = board.seconds_left(running)
    if left is not None and board.waiting:
        parts.append(f"about {duration(left)} left")
    return ", ".join(parts)


def watch(folder: CompareFolder, console: Console | None = None) -> None:
    """Show a grid that other processes run, out of its files alone, until all has ended or nobody is at work on it.

    Raises:
        UserError: no comparison has been run there.
    """
    plan = newest_plan(folder)
    if plan is None:
        raise UserError(
            "no comparison has begun there, so there is nothing to watch", where=str(folder.path), fix="give --run DIR"
        )
    board = Board(folder, plan, since=0)
    with LiveGrid(console, lines=False) as grid:
        grid.open(board)
        said = ""
        while True:
            for record in board.look():
                grid.end(board, record)
            grid.look(board)
            text = summary(board, board.running())
            is_over = not board.waiting or not any(True for _ in folder.claims.held())
            if grid.console.is_terminal and not is_over:
                time.sleep(WATCH)
                continue
            if text != said:
                grid.console.print(Text(said := text))
            if is_over:
                return
            time.sleep(WATCH)
