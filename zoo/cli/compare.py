"""``zoo compare``: variants x tasks x seeds, and what their differences say."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import options, output
from zoo.errors import Interrupted

if TYPE_CHECKING:
    from zoo.comparison.cells import Cell
    from zoo.training.metrics import Row

PIPE = 80
"""Columns of what goes into a file or pipe."""


@click.command("compare")
@options.source
@options.overrides
@click.option("--run", metavar="DIR", help="The folder; in that of an earlier comparison only what is missing is run.")
@click.option("--dry-run", is_flag=True, help="Check every cell and list them; run none and write nothing.")
@options.plugins
@options.as_json
def command(
    source: str, overrides: tuple[str, ...], run: str | None, dry_run: bool, plugins: tuple[str, ...], as_json: bool
) -> int:
    """Compare variants on tasks over seeds.

    RECIPE is a recipe with a `compare` block: `variants` ({NAME: {key.path: value}}) or `vary` ({key.path: [value]}),
    `tasks` (recipes; by default itself), `seeds` (3) and `baseline` (the first variant). Each variant is trained on
    each task with the same seeds, so that differences are paired. KEY=VALUE sets a value of every run,
    compare.seeds=5 one of the block itself.

    Exits 0 if every run ended, by divergence too; 1 if one failed; 2 if none was valid.
    """
    from zoo.recipe import load_comparison

    comparison = load_comparison(source, overrides, plugins=plugins)
    folder = None if run is None else Path(run)
    with output.stdout_kept_for_json(as_json):
        from zoo.comparison.compare import compare_variants, plan

        if dry_run:
            result = plan(comparison, folder)
        else:
            with Live() as live:
                result = compare_variants(comparison, folder, live)
    if as_json:
        output.print_json(result)
    else:
        _print(result, dry_run)
    return 0 if dry_run else _code(result)


def _code(result: Mapping[str, Any]) -> int:
    statuses = {cell["status"] for cell in result["cells"]}
    if statuses == {"invalid"}:
        return 2
    return 1 if statuses & {"failed", "interrupted"} else 0


class Live:
    """One line on standard error that follows the running cell, and one that stays for each that has ended."""

    def __init__(self) -> None:
        from rich.console import Console

        self.status = Console(stderr=True, highlight=False).status("")
        self.folder = self.place = ""

    def __enter__(self) -> Live:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.status.stop()
        if isinstance(error, Interrupted):
            self._say(f"to go on, give the same command and --run {shlex.quote(self.folder)}")

    def open(self, folder: Path, waiting: int, ended: int) -> None:
        """Name the folder."""
        self.folder = output.near(folder)
        self._say(f"{self.folder}: {waiting} to run" + (f", {ended} there already" if ended else ""))

    def begin(self, cell: Cell, number: int, total: int) -> None:
        """Name the cell."""
        self.place = f"{number}/{total} {cell.title}"
        self._follow("starting")
        self.status.start()

    def step(self, cell: Cell, row: Row) -> None:
        """Its step and loss."""
        assert cell.recipe is not None
        loss = f" loss {row['train_loss']:.4f}" if "train_loss" in row else ""
        self._follow(f"step {row['step']:,.0f}/{cell.recipe.trainer['max_steps']:,}{loss}")

    def end(self, cell: Cell) -> None:
        """How it ended."""
        self.status.stop()
        from zoo.comparison.cells import outcome

        measured = [f"{name} {value:.4f}" for name, value in cell.metrics.items() if name.startswith("val_")]
        reason = cell.reason.partition("\n")[0] or next(iter(measured), "")
        self._say(f"{self.place}: {outcome(cell.status, reason)}")

    def _follow(self, text: str) -> None:
        from rich.text import Text

        self.status.update(Text(f"{self.place}: {text}", overflow="ellipsis", no_wrap=True))

    def _say(self, text: str) -> None:
        click.echo(text, err=True)


def _print(result: Mapping[str, Any], dry_run: bool) -> None:
    from rich.console import Console

    from zoo.comparison.tables import plan_table, result_tables

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE)
    for part in plan_table(result) if dry_run else result_tables(result):
        console.print(part)
    if not dry_run:
        click.echo(f"results: {output.near(result['folder'])}/results.csv")
