"""``zoo show``: a recipe as it will be run, and where each value comes from."""

from __future__ import annotations

import click

from zoo.cli import options, output


@click.command("show")
@options.source
@options.overrides
@click.option("--explain", is_flag=True, help="Say where each value comes from: default, base, recipe or override.")
@options.plugins
@options.as_json
def command(source: str, overrides: tuple[str, ...], explain: bool, plugins: tuple[str, ...], as_json: bool) -> None:
    """Print a recipe as it will be run.

    Its bases are merged, defaults filled in, every value checked. Nothing is written and no data is read.
    """
    from zoo.recipe import load_recipe
    from zoo.recipe.source import write_text

    recipe = load_recipe(source, overrides, plugins=plugins)
    if not explain:
        output.print_json(recipe.shown()) if as_json else click.echo(write_text(recipe.shown()), nl=False)
        return
    values = recipe.explain()
    if as_json:
        output.print_json([{"path": path, "value": value, "origin": str(origin)} for path, value, origin in values])
        return
    rows = [(path, write_text(value).removesuffix("...\n").strip(), str(origin)) for path, value, origin in values]
    click.echo(output.table(rows, width=output.terminal_width()))
