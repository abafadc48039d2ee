"""``zoo verify``: published results, trained again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import options, output

if TYPE_CHECKING:
    from zoo.verification.entries import Entry


@click.command("verify")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--list", "only_list", is_flag=True, help="Say what would be measured, from which source; train nothing.")
@options.plugins
@options.as_json
def command(names: tuple[str, ...], only_list: bool, plugins: tuple[str, ...], as_json: bool) -> int:
    """Train small published results again.

    Each is a file verify/NAME.yaml beside the recipes, with its source, and bounds between which every figure must
    lie. Without NAME, all of them; --list says how long that takes.

    Exits 0 if all pass, 1 if one fails.
    """
    from zoo.registry import Registry
    from zoo.verification.entries import find_entries

    options.use_plugins(plugins)
    registry = Registry.discover()
    entries = find_entries(names, registry)
    if only_list:
        _list(entries, as_json)
        return 0
    with output.stdout_kept_for_json(as_json):
        from zoo.verification.verify import verify

        found = verify(entries, registry, lambda line: click.echo(line, err=True))
    if as_json:
        output.print_json(found)
    else:
        from zoo.verification.tables import show, verify_tables

        show(verify_tables(found))
    return 1 if found["failed"] else 0


def _list(entries: Sequence[Entry], as_json: bool) -> None:
    if as_json:
        output.print_json([_plain(entry) for entry in entries])
        return
    from zoo.verification.tables import entry_tables, show

    show(entry_tables(entries))


def _plain(entry: Entry) -> dict[str, Any]:
    return {**dataclasses.asdict(entry), "seconds": entry.seconds}
