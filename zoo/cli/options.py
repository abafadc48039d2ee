"""Arguments and options that several commands share."""

from __future__ import annotations

import os

import click

source = click.argument("source", metavar="RECIPE")
run = click.argument("run", metavar="RUN")
overrides = click.argument("overrides", metavar="[KEY=VALUE]...", nargs=-1)
plugins = click.option(
    "--plugin", "plugins", metavar="PATH", multiple=True, help="A component file or folder; may be repeated."
)
workers = click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Workers at a time.")
executor = click.option("--executor", metavar="NAME", help="What starts the workers: local, slurm, or a plugin's.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document to stdout.")


def use_plugins(plugins: tuple[str, ...]) -> None:
    """Let everything in this process, and what it starts, discover these plugins beside those of its environment.

    For commands that start from a run folder, whose recipe is read deeper down.

    Raises:
        UserError: a path that can't be a plugin.
    """
    from zoo.registry import Registry

    if plugins:
        os.environ.update(Registry.discover(plugins).environment())
