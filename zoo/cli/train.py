"""``zoo train``: one training job, from a recipe to a run folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from zoo.cli import options, output
from zoo.errors import UserError

SAMPLE_TOKENS = 120
SAMPLE_PAIRS = 4


@click.command("train")
@options.source
@options.overrides
@click.option("--run", metavar="DIR", help="The run folder; by default runs/RECIPE-N with the next free N.")
@click.option("--resume", is_flag=True, help="Go on where a run stopped; RECIPE may be the run folder itself.")
@options.plugins
@options.as_json
def command(
    source: str, overrides: tuple[str, ...], run: str | None, resume: bool, plugins: tuple[str, ...], as_json: bool
) -> None:
    """Train a model as RECIPE says.

    RECIPE is a YAML file, the name of a recipe, or a run folder. KEY=VALUE sets one of its values, for example
    trainer.max_steps=500.
    """
    from zoo.recipe import load_recipe

    folder = None if run is None else Path(run)
    if resume:
        folder = _resumed(source, folder)
    recipe = load_recipe(source, overrides, plugins=plugins)
    with output.stdout_kept_for_json(as_json):
        from zoo.training.train import train

        result = train(recipe, run=folder, resume=resume)
    output.print_result(result, as_json)
    if not as_json:
        _show_sample(result)


def _resumed(source: str, run: Path | None) -> Path:
    """The run folder to go on with: the one that is named, or the source itself."""
    if run is not None:
        return run
    if (Path(source) / "recipe.yaml").is_file():
        return Path(source)
    from zoo.recipe.training import RUNS

    found = sorted(RUNS.glob(f"{Path(source).stem}-*/recipe.yaml"), key=lambda file: file.stat().st_mtime)
    candidates = [str(file.parent) for file in reversed(found)]
    raise UserError(
        f"--resume needs to know which run of {source} to go on with",
        where="candidates, newest first: " + (", ".join(candidates) or f"none in {RUNS.absolute()}"),
        fix=f"zoo train {shlex.quote(candidates[0] if candidates else 'DIR')} --resume, "
        f"or zoo train {shlex.quote(source)} --resume --run DIR",
    )


def _show_sample(result: Mapping[str, Any]) -> None:
    """What the trained model writes, if it can, and the command that makes it write more."""
    from zoo.generation import can_generate, continue_texts, has_cache
    from zoo.training.run import load_run

    run = output.near(result["run"])
    loaded = load_run(run)
    if loaded.tokenizer is None or not can_generate(loaded.model):
        click.echo(f"next: zoo eval {shlex.quote(run)} --split test")
        return
    if "cross" in loaded.model.offers:
        _show_pairs(run)
        return
    cache = has_cache(loaded.model)
    (sample,) = continue_texts(loaded, [""], max_new_tokens=SAMPLE_TOKENS, temperature=0.8, cache=cache)
    shown = _shown(sample.text, keep="\n\t").strip()
    click.echo(f"\nit writes:\n{shown}\n")
    words = [word for word in sample.text.split() if word.isascii() and word.isprintable()]
    how = f"--prompt {shlex.quote(words[0] if words else 'The')}" + ("" if cache else " --no-cache")
    click.echo(f"next: zoo generate {shlex.quote(run)} {how}")


def _show_pairs(run: str) -> None:
    """What a trained encoder-decoder makes of some sources that it hasn't learned from."""
    from zoo.training.decoded import sample_texts

    pairs = sample_texts(run, SAMPLE_PAIRS, SAMPLE_TOKENS)
    click.echo("\nit writes:")
    for source, text, target in pairs:
        click.echo(
            f"  {_shown(source)} → {_shown(text)}" + ("" if text == target else f"   (target: {_shown(target)})")
        )
    source = pairs[0][0] if pairs else "SOURCE"
    click.echo(f"\nnext: zoo generate {shlex.quote(run)} --prompt {shlex.quote(source)} --temperature 0")


def _shown(text: str, keep: str = "") -> str:
    """The text as a terminal may have it, on one line unless ``keep`` has line ends."""
    return "".join(char if char.isprintable() or char in keep else "\ufffd" for char in text)
