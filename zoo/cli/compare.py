"""``zoo compare``: variants x tasks x seeds, and what their differences say."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from zoo.cli import options, output
from zoo.errors import UserError

PIPE = 80
"""Columns of what goes into a file or pipe."""


@click.command("compare")
@options.source
@options.overrides
@click.option("--run", metavar="DIR", help="The folder; in that of an earlier comparison only what is missing is run.")
@click.option("--dry-run", is_flag=True, help="Check every cell and list them; run none and write nothing.")
@options.workers
@options.executor
@click.option("--watch", is_flag=True, help="Follow a grid that another process runs; RECIPE may be its folder.")
@options.plugins
@options.as_json
def command(
    source: str,
    overrides: tuple[str, ...],
    run: str | None,
    dry_run: bool,
    workers: int | None,
    executor: str | None,
    watch: bool,
    plugins: tuple[str, ...],
    as_json: bool,
) -> int:
    """Compare variants on tasks over seeds.

    RECIPE is a recipe with a `compare` block: `variants` ({NAME: {key.path: value}}) or `vary` ({key.path: [value]}),
    `tasks` (recipes; by default itself), `seeds` (3) and `baseline` (the first variant). Each variant is trained on
    each task with the same seeds, so that differences are paired. KEY=VALUE sets a value of every run,
    compare.seeds=5 one of the block itself.

    Exits 0 if every run ended, by divergence too; 1 if one failed; 2 if none was valid.
    """
    if watch:
        return _watch(source, run)
    from zoo.recipe import load_comparison

    comparison = load_comparison(source, overrides, plugins=plugins)
    folder = None if run is None else Path(run)
    with output.stdout_kept_for_json(as_json):
        from zoo.comparison.compare import compare_variants, plan
        from zoo.comparison.live import LiveGrid
        from zoo.report.write import write_report

        if dry_run:
            result = plan(comparison, folder)
        else:
            with LiveGrid() as live:
                result = compare_variants(comparison, folder, live, executor=executor, workers=workers)
            write_report(Path(result["folder"]), comparison.registry)
    if as_json:
        output.print_json(result)
    else:
        _print(result, dry_run)
    return 0 if dry_run else _code(result)


def _watch(source: str, run: str | None) -> int:
    """Show how the grid of a folder goes."""
    from zoo.comparison.folder import CompareFolder

    folder = CompareFolder(Path(source if run is None else run))
    if not folder.comparison.is_file():
        fix = "give the folder of a comparison: zoo compare --watch DIR, or RECIPE --run DIR"
        raise UserError(f"{folder.path} holds no comparison", where="--watch", fix=fix)
    from zoo.comparison.live import watch

    watch(folder)
    return 0


def _code(result: Mapping[str, Any]) -> int:
    statuses = {cell["status"] for cell in result["cells"]}
    if statuses == {"invalid"}:
        return 2
    return 1 if statuses & {"failed", "interrupted"} else 0


def _print(result: Mapping[str, Any], dry_run: bool) -> None:
    from rich.console import Console

    from zoo.comparison.tables import plan_table, result_tables

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE)
    for part in plan_table(result) if dry_run else result_tables(result):
        console.print(part)
    if not dry_run:
        click.echo(f"results: {output.near(result['folder'])}/report.html, results.csv, costs.csv")
