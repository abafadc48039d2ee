"""``zoo info``: what a model costs, found without making it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zoo.cli import options, output

if TYPE_CHECKING:
    from zoo.info import Information


@click.command("info")
@click.argument("source", metavar="RECIPE|PRESET")
@options.overrides
@options.plugins
@options.as_json
def command(source: str, overrides: tuple[str, ...], plugins: tuple[str, ...], as_json: bool) -> None:
    """Count parameters, multiply-adds and memory.

    Nothing is made or trained, so a model of any size takes seconds. The data is read only if the recipe leaves
    a size of the architecture to it.
    """
    from zoo.recipe import load_recipe

    recipe = load_recipe(source, overrides, plugins=plugins)
    with output.stdout_kept_for_json(as_json):
        from zoo.api import data_sizes
        from zoo.info import information

        result = information(recipe, data_sizes(recipe))
    if as_json:
        output.print_json(result.json())
    else:
        click.echo(_text(result, output.terminal_width()))


_COUNTED = {
    "macs_per_token": "multiply-adds per token",
    "macs_per_image": "multiply-adds per image",
    "macs_per_source_token": "multiply-adds per token of the source",
    "macs_per_target_token": "multiply-adds per token of the target",
}


def _text(result: Information, width: int | None) -> str:
    """Three tables, and what their numbers mean."""
    counts = result.parameters
    memory = result.memory_bytes
    parameters = [(line.label, f"{line.parameters:,}") for line in result.table]
    parameters += [
        ("  without embeddings", f"{counts['total'] - counts['embedding']:,}"),
        ("  trainable", f"{counts['trainable']:,}"),
    ]
    if counts["active"] != counts["total"]:
        parameters.append(("  active for one token", f"{counts['active']:,}"))
    costs = [(_COUNTED[name], _number(count)) for name, count in result.macs.items()]
    costs.append(("cache, bytes per token", _number(result.cache_bytes_per_token)))
    bytes_ = [(name, _size(memory[name])) for name in ("weights", "gradients", "optimizer", "activations")]
    return "\n".join(
        [
            f"{result.name}: parameters",
            output.table(parameters, right=True, width=width),
            f"\na forward pass over {result.tokens:,} tokens, head included",
            output.table(costs, right=True, width=width),
            *(f"  n/a: no formula for {operation}" for operation in result.unknown_operations),
            f"\nmemory in training, one replica, {result.dtype}, {result.rows:,} x {result.tokens:,} tokens at a time",
            output.table(bytes_, right=True, width=width),
        ]
    )


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _size(count: int | None) -> str:
    """Bytes in the largest unit that leaves a number of at least 1."""
    if count is None:
        return "n/a"
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if count >= 1000**power:
            return f"{count / 1000**power:,.2f} {unit}"
    return f"{count} B"
