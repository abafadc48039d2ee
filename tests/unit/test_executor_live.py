"""What a terminal shows of a grid that runs, and a pipe in its place."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from zoo.comparison.board import Board
from zoo.comparison.folder import CompareFolder
from zoo.comparison.index import Record
from zoo.comparison.live import LiveGrid, picture, watch
from zoo.comparison.plans import Job, Plan, Shared
from zoo.errors import UserError

SHARED = Shared(text="seed: 1\n", plugins={}, sources={}, steps=2000, devices=1)


def grid(path: Path, count: int) -> tuple[CompareFolder, Board]:
    """A folder with a plan of some cells, and its board."""
    folder = CompareFolder(path)
    titles = {f"a{n}": f"plain / text / seed {n}" for n in range(count)}
    plan = Plan([SHARED], [Job(name, title, "plain", "text", 1, 0, 1, False) for name, title in titles.items()])
    path.mkdir(exist_ok=True)
    plan.write(folder.plans)
    return folder, Board(folder, plan)


def ended(folder: CompareFolder, address: str, status: Any = "completed", reason: str = "") -> None:
    result = {"metrics": {"train_loss": 1.0, "val_loss": 2.25}}
    folder.run(address).path.mkdir(parents=True)
    folder.index.append(Record(address=address, status=status, reason=reason, seconds=60.0, result=result))


def console(text: io.StringIO, *, terminal: bool) -> Console:
    return Console(file=text, force_terminal=terminal, width=80, height=24, color_system=None, soft_wrap=True)


def drawn(board: Board, height: int = 24) -> str:
    text = io.StringIO()
    console(text, terminal=False).print(picture(board, height))
    return text.getvalue()


def test_the_table_has_running_cells_failures_and_a_line_of_sums(tmp_path: Path) -> None:
    folder, board = grid(tmp_path, 8)
    claims = [folder.claims.take("a2"), folder.claims.take("a3")]
    metrics = folder.run("a2").metrics
    metrics.parent.mkdir(parents=True)
    metrics.write_text("step,train_loss\n1500,0.51234\n")
    ended(folder, "a0")
    ended(folder, "a1", "failed", "RuntimeError: boom\nsee the file")
    board.look()
    lines = drawn(board).splitlines()
    assert lines[0].split() == ["cell", "step", "loss", "time"]
    assert "plain / text / seed 2" in lines[1] and lines[1].split()[-3:-1] == ["1,500/2,000", "0.5123"]
    assert "plain / text / seed 3" in lines[2] and "starting" in lines[2]
    assert lines[3] == "plain / text / seed 1: failed: RuntimeError: boom"
    assert lines[4] == "2 of 8 done, 2 running, 1 failed, about 2:38 left"  # 6 cells less three quarters of one, by two
    assert all(claims)


def test_a_low_terminal_shows_some_of_many(tmp_path: Path) -> None:
    folder, board = grid(tmp_path, 30)
    claims = [folder.claims.take(f"a{n}") for n in range(30)]
    text = drawn(board, height=12)
    assert text.count("starting") == 5 and "and 25 more" in text and len(text.splitlines()) <= 12
    assert drawn(board, height=100).count("starting") == 20 and all(claims)


def test_a_terminal_is_told_of_bad_ends_and_a_pipe_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder, board = grid(tmp_path / "out", 3)
    for terminal in (True, False):
        text = io.StringIO()
        with LiveGrid(console(text, terminal=terminal)) as live:
            live.open(board)
            live.look(board)
            for record in (
                Record(address="a0", status="completed", result={"metrics": {"val_loss": 2.25}}),
                Record(address="a1", status="diverged", reason="diverged at step 3: loss is nan"),
            ):
                live.end(board, record)
        said = text.getvalue()
        assert "out: 3 to run" in said
        assert "plain / text / seed 1: diverged at step 3: loss is nan" in said
        assert ("plain / text / seed 0: completed: val_loss 2.2500" in said) != terminal
        assert ("0 of 3 done" in said) == terminal
    del folder


def test_watching_ends_when_nobody_is_at_work(tmp_path: Path) -> None:
    folder, _ = grid(tmp_path, 3)
    ended(folder, "a0")
    text = io.StringIO()
    watch(folder, console(text, terminal=False))
    assert text.getvalue().splitlines()[-1] == "1 of 3 done, 0 running, about 2:00 left"


def test_there_must_have_been_a_plan(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to watch"):
        watch(CompareFolder(tmp_path))
