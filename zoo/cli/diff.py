"""``zoo diff``: in what two runs or recipes differ."""

from __future__ import annotations

import click

from zoo.cli import options, output


@click.command("diff")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@options.plugins
@options.as_json
def command(first: str, second: str, plugins: tuple[str, ...], as_json: bool) -> None:
    """Explain how two runs, or two recipes, differ.

    A and B are each a run folder, a cell of a comparison (FOLDER:VARIANT/TASK/SEED), or a recipe or preset.
    Shown are values of the recipes with where they come from, code, versions and data, metrics side by side, and
    the first step at which the metrics differ. The last line says it in one sentence.
    """
    options.use_plugins(plugins)
    with output.stdout_kept_for_json(as_json):
        from zoo.verification.difference import diff
        from zoo.verification.subjects import find_subject

        found = diff(find_subject(first), find_subject(second))
    if as_json:
        output.print_json(found)
        return
    from zoo.verification.tables import difference_tables, show

    show(difference_tables(found))
