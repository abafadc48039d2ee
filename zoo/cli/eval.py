"""``zoo eval``: the metrics of a run's model."""

from __future__ import annotations

from typing import Literal

import click

from zoo.cli import options, output
from zoo.errors import UserError


@click.command("eval")
@options.run
@options.overrides
@click.option("--split", type=click.Choice(["validation", "test"]), default="validation", show_default=True)
@click.option("--bleu", is_flag=True, help="Write every target from its source, and add BLEU and chrF.")
@click.option("--beams", type=int, default=1, show_default=True, help="With --bleu: beams of a search; 1 is greedy.")
@click.option(
    "--length-penalty", type=float, default=1.0, show_default=True, help="Of a search: log p / length^P wins."
)
@options.plugins
@options.as_json
def command(
    run: str,
    overrides: tuple[str, ...],
    split: Literal["validation", "test"],
    bleu: bool,
    beams: int,
    length_penalty: float,
    plugins: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure the model of a run folder.

    It is measured on its own data or, by KEY=VALUE such as data.files=[other.txt], on other data.
    """
    if not bleu and (beams != 1 or length_penalty != 1):
        raise UserError("--beams and --length-penalty are for --bleu alone", fix="add --bleu, or leave them out")
    options.use_plugins(plugins)
    with output.stdout_kept_for_json(as_json):
        from zoo.training.evaluate import evaluate

        result = evaluate(run, overrides, split, beams=beams if bleu else None, length_penalty=length_penalty)
    output.print_result(result, as_json)
