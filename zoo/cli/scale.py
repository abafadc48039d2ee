"""``zoo scale``: a ladder of sizes and amounts of data, and the law of their losses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from zoo.cli import options, output


@click.command("scale")
@options.source
@options.overrides
@click.option("--run", metavar="DIR", help="The folder; in that of an earlier ladder only what is missing is run.")
@click.option("--dry-run", is_flag=True, help="List the runs with their sizes and compute; make none.")
@options.workers
@options.executor
@click.option(
    "--count",
    "counted",
    type=click.Choice(["all", "without-embeddings"]),
    default="all",
    show_default=True,
    help="Which parameters are N.",
)
@click.option("--metric", metavar="NAME", help="The loss that is fitted; val_loss, or test_loss where runs have it.")
@click.option("--draws", type=click.IntRange(100), default=1000, show_default=True, help="Of the bootstrap.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the bootstrap.")
@options.plugins
@options.as_json
def command(
    source: str,
    overrides: tuple[str, ...],
    run: str | None,
    dry_run: bool,
    workers: int | None,
    executor: str | None,
    counted: Any,
    metric: str | None,
    draws: int,
    seed: int,
    plugins: tuple[str, ...],
    as_json: bool,
) -> None:
    """Train a ladder of sizes and fit its scaling law.

    RECIPE is a comparison whose variants are at least 3 sizes with at least 3 amounts of data each, such as
    scale/text. L(N, D) = E + A / N^a + B / D^b is fitted to what they come to, with intervals, and evaluated beyond
    them; the folder gets scaling.json, scaling.md and scaling.svg. With --run FOLDER a finished ladder is fitted again.
    """
    from zoo.recipe import load_comparison

    comparison = load_comparison(source, overrides, plugins=plugins)
    folder = None if run is None else Path(run)
    with output.stdout_kept_for_json(as_json):
        from zoo.comparison.live import LiveGrid
        from zoo.scaling.scale import plan_ladder, scale

        if dry_run:
            found = plan_ladder(comparison, folder, counted=counted)
        else:
            with LiveGrid() as live:
                found = scale(
                    comparison,
                    folder,
                    live,
                    executor=executor,
                    workers=workers,
                    counted=counted,
                    metric=metric,
                    draws=draws,
                    seed=seed,
                )
    if as_json:
        output.print_json(found)
    elif dry_run:
        click.echo(_planned(found))
    else:
        from zoo.scaling.report import lines

        click.echo("\n\n".join(lines(found)))
        click.echo(f"\nladder: {output.near(found['folder'])}/scaling.md")


def _planned(found: Mapping[str, Any]) -> str:
    rungs = found["rungs"]
    rows = [("variant", "parameters", "without embeddings", "tokens", "FLOPs", "runs")]
    for rung in rungs:
        tokens = "n/a" if rung["tokens"] is None else f"{rung['tokens']:,}"
        flops = "n/a" if rung["flops"] is None else f"{rung['flops']:.3g}"
        runs = ", ".join(f"{count} {status}" for status, count in rung["statuses"].items())
        rows.append(
            (rung["variant"], f"{rung['parameters']:,}", f"{rung['without_embeddings']:,}", tokens, flops, runs)
        )
    total = sum(rung["flops"] or 0 for rung in rungs) * len(found["seeds"])
    return f"{output.table(rows)}\n\n{len(rungs) * len(found['seeds'])} runs, {total:.3g} FLOPs"
