"""``zoo list``: every component that can be named in a recipe, known without importing one."""

from __future__ import annotations

import click

from zoo.cli import options, output


@click.command("list")
@click.argument("kind", required=False)
@options.plugins
@options.as_json
def command(kind: str | None, plugins: tuple[str, ...], as_json: bool) -> None:
    """List the components that recipes can name.

    KIND is one kind of component, for example attention; without it all are listed.
    """
    from zoo.registry import Registry

    found = Registry.discover(plugins).components(kind)
    if as_json:
        output.print_json([component.record() for component in found])
        return
    says = {"ok": "", "broken": "BROKEN: ", "unloaded": "not loaded: "}
    rows = [
        (each.kind, each.name, each.provider, f"{says[each.status]}{each.error or each.summary.replace('``', '')}")
        for each in found
    ]
    click.echo(output.table(rows, width=output.terminal_width()))
