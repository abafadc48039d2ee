"""``zoo generate``: text that a run's model writes."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from zoo.cli import options, output


@click.command("generate")
@options.run
@click.option(
    "--prompt",
    "prompts",
    metavar="TEXT",
    multiple=True,
    help="Where the text starts, or a source to be translated; may be repeated.",
)
@click.option("--max-new-tokens", type=int, default=200, show_default=True, help="Most tokens that are added.")
@click.option("--temperature", type=float, default=1.0, show_default=True, help="0 is greedy.")
@click.option("--top-k", type=int, default=0, show_default=True, help="Choose among the K likeliest; 0 is off.")
@click.option("--top-p", type=float, default=1.0, show_default=True, help="Choose among the likeliest that make up P.")
@click.option(
    "--beams", type=int, default=1, show_default=True, help="Search for the best text with N beams; 1 is off."
)
@click.option(
    "--length-penalty", type=float, default=1.0, show_default=True, help="Of a search: log p / length^P wins."
)
@click.option("--no-cache", is_flag=True, help="Compute everything again for each token; the same text, slower.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random choices.")
@options.plugins
@options.as_json
def command(
    run: str, prompts: tuple[str, ...], no_cache: bool, plugins: tuple[str, ...], as_json: bool, **sampling: Any
) -> None:
    """Write text with the model of a run folder.

    Without a prompt it starts a new text. Several prompts run as one batch; each is continued as it would be alone.
    An encoder-decoder takes each prompt as its source and writes what belongs to it.
    """
    prompts = prompts or ("",)
    options.use_plugins(plugins)
    streamed = not as_json and len(prompts) == 1
    lead = prompts[0]  # printed with the first piece, so that a prompt which is refused isn't

    def show(_row: int, piece: str) -> None:
        nonlocal lead
        click.echo(lead + piece, nl=False)
        lead = ""

    with output.stdout_kept_for_json(as_json):
        from zoo.generation import continue_texts
        from zoo.training.run import load_run

        loaded = load_run(run)
        reads = "cross" in loaded.model.offers
        lead = "" if reads else lead
        results = continue_texts(loaded, prompts, cache=not no_cache, stream=show if streamed else None, **sampling)
    if as_json:
        output.print_json([dataclasses.asdict(result) for result in results])
    elif streamed:
        click.echo(lead)
    else:
        between, apart = (" → ", "\n") if reads else ("", "\n\n")
        click.echo(apart.join(f"{result.prompt}{between}{result.text}" for result in results))
