"""``zoo predict``: classes of images and texts, by a run's model."""

from __future__ import annotations

from typing import Any

import click

from zoo.cli import options, output


@click.command("predict")
@options.run
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option(
    "--top", type=click.IntRange(min=1), default=5, show_default=True, help="Likeliest classes to show; JSON has all."
)
@options.plugins
@options.as_json
def command(run: str, inputs: tuple[str, ...], top: int, plugins: tuple[str, ...], as_json: bool) -> None:
    """Say which classes images or texts belong to.

    Each INPUT is a text, or for a model of images the path of a file. Their classes are shown with probabilities,
    the likeliest first.
    """
    options.use_plugins(plugins)
    with output.stdout_kept_for_json(as_json):
        from zoo.training.predict import predict

        found = predict(run, inputs)
    if as_json:
        output.print_json(found)
    else:
        click.echo("\n\n".join(_shown(result, top) for result in found))


def _shown(result: dict[str, Any], top: int) -> str:
    rows = [(f"  {each['name']}", f"{each['probability']:.4f}") for each in result["classes"][:top]]
    return f"{result['input']}\n{output.table(rows, right=True)}"
