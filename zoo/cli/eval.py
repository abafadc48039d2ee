"""``zoo eval``: the metrics of a run's model."""

from __future__ import annotations

from typing import Literal

import click

from zoo.cli import options, output


@click.command("eval")
@options.run
@options.overrides
@click.option("--split", type=click.Choice(["validation", "test"]), default="validation", show_default=True)
@options.plugins
@options.as_json
def command(
    run: str, overrides: tuple[str, ...], split: Literal["validation", "test"], plugins: tuple[str, ...], as_json: bool
) -> None:
    """Measure the model of a run folder.

    It is measured on its own data or, by KEY=VALUE such as data.files=[other.txt], on other data.
    """
    options.use_plugins(plugins)
    with output.stdout_kept_for_json(as_json):
        from zoo.training.evaluate import evaluate

        result = evaluate(run, overrides, split)
    output.print_result(result, as_json)
