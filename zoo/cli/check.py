"""``zoo check``: is a component, a file or a recipe what it claims to be."""

from __future__ import annotations

import click

from zoo.cli import options, output


@click.command("check")
@click.argument("target", metavar="TARGET")
@options.overrides
@click.option("--full", is_flag=True, help="Also inductor, export, other processes and many more masks; takes minutes.")
@options.plugins
@options.as_json
def command(target: str, overrides: tuple[str, ...], full: bool, plugins: tuple[str, ...], as_json: bool) -> int:
    """Check a component against its contract.

    Causality, padding, cache, gradients, precision, state, as far as the component claims them.
    TARGET is a plugin file, a component (attention/multi_head), or a recipe. KEY=VALUE changes the recipe, for
    example architecture.attention.kv_heads=2.
    """
    with output.stdout_kept_for_json(as_json):
        from zoo.testing.check import check

        report = check(target, full=full, plugins=plugins, overrides=overrides)
    if as_json:
        output.print_json(report.json())
    else:
        click.echo(report.text(output.terminal_width() or 110))
    return 0 if report.ok else 1
