"""``zoo new``: a plugin that works, to start from."""

from __future__ import annotations

from pathlib import Path

import click

from zoo.cli import output


@click.command("new")
@click.argument("kind")
@click.argument("name")
@click.option("--package", is_flag=True, help="A whole distribution instead of one file and its test.")
def command(kind: str, name: str, package: bool) -> None:
    """Write a new component and its test.

    KIND is a kind of component, for example attention; the files go into the working directory.
    """
    from zoo.testing.scaffold import new

    files = new(kind, name, package=package, folder=Path.cwd())
    for file in files:
        click.echo(f"wrote {output.near(file)}")
    click.echo(f"next: zoo check {output.near(files[0])}")
