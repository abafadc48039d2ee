"""``zoo replay``: a run once more, from its lock."""

from __future__ import annotations

import click

from zoo.cli import options, output


@click.command("replay")
@options.run
@click.option("--run", "to", metavar="DIR", help="An empty or new folder for the replay; by default runs/RUN-replay.")
@click.option("--anyway", is_flag=True, help="Train although versions, sources or data aren't those of the lock.")
@click.option("--stop-at-first", is_flag=True, help="End at the first row of metrics that differs.")
@options.plugins
@options.as_json
def command(
    run: str, to: str | None, anyway: bool, stop_at_first: bool, plugins: tuple[str, ...], as_json: bool
) -> int:
    """Train a run again and say whether it is bit-equal.

    Refused if versions of packages, sources of components or the data aren't those of the run's lock. Otherwise the
    metrics of each step and the newest weights are compared to the last bit, and the first step that differs is
    named.

    Exits 0 if they are equal, 1 if not.
    """
    options.use_plugins(plugins)
    with output.stdout_kept_for_json(as_json):
        from zoo.verification.replay import replay

        found = replay(run, to, anyway=anyway, stop_at_first=stop_at_first)
    if as_json:
        output.print_json(found)
    else:
        from zoo.verification.tables import replay_tables, show

        show(replay_tables(found))
        click.echo(f"replay: {output.near(found['replay'])}")
    return 0 if found["status"] == "bit-equal" else 1
