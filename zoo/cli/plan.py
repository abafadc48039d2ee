"""``zoo plan``: compute in, a model, its data and a recipe out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from zoo.cli import options, output
from zoo.errors import UserError

RECIPE = "gpt2_text"
"""What is given other sizes, unless another is named."""


@click.command("plan")
@options.overrides
@click.option("--flops", type=float, metavar="F", help="Compute to spend, as 6 x parameters x tokens.")
@click.option("--gpu-hours", type=float, metavar="H", help="The same as hours of one device.")
@click.option("--device", metavar="NAME", help="Which device; without one, and without --peak, all that are known.")
@click.option("--peak", type=float, metavar="FLOPS", help="The rate of another device, in FLOPs a second.")
@click.option("--utilisation", type=float, default=0.4, show_default=True, help="Share of the peak that is reached.")
@click.option("--recipe", "source", metavar="RECIPE|PRESET", default=RECIPE, show_default=True, help="To be resized.")
@click.option("--ratio", type=float, metavar="R", help="Tokens per parameter; 20 by default.")
@click.option("--fit", metavar="FILE|NAME", help="In place of a ratio, the law of a scaling.json, or a published one.")
@click.option("--output", "file", metavar="FILE", help="Write the recipe there instead of to stdout.")
@options.plugins
@options.as_json
def command(
    overrides: tuple[str, ...],
    flops: float | None,
    gpu_hours: float | None,
    device: str | None,
    peak: float | None,
    utilisation: float,
    source: str,
    ratio: float | None,
    fit: str | None,
    file: str | None,
    plugins: tuple[str, ...],
    as_json: bool,
) -> None:
    """Plan a training run for an amount of compute.

    Says how large a model, on how many tokens, with how much memory and for how long; and prints a recipe for it, in
    which all of that is a comment. KEY=VALUE sets a value of the recipe that is resized.

    The model has layers, a width and heads such that its parameters are about those that the rule asks for; tokens
    are then what the compute leaves.
    """
    from zoo.recipe import load_recipe

    target = None if file is None else _free(Path(file))
    with output.stdout_kept_for_json(as_json):
        from zoo.builder import sizes_from_data
        from zoo.scaling import plan, request
        from zoo.training.job import prepare_task

        rule, machine = request.read_rule(ratio, fit), request.read_machine(device, peak)
        compute = request.budget(flops, gpu_hours, machine, utilisation)
        recipe = load_recipe(source, overrides, plugins=plugins)
        plan.check_causal(recipe)
        description = train_tokens = None
        if sizes_from_data(recipe):
            task = prepare_task(recipe)
            description = task.describe()
            train_tokens = task.data.size("train") * (description.max_length or 0) or None
        found = plan.make_plan(
            recipe,
            description,
            compute,
            rule,
            machine=machine,
            utilisation=utilisation,
            train_tokens=train_tokens,
        )
        text = plan.recipe_text(recipe, overrides, found, target.parent if target else Path.cwd())
        if target:
            target.write_text(text, encoding="utf-8")
    if as_json:
        output.print_json({**found, "output": target and str(target)})
        return
    said = "\n\n".join(_lines(found))
    if target:
        click.echo(f"{said}\n\nrecipe: {output.near(target)}")
    else:
        click.echo("\n".join(f"# {line}".rstrip() for line in said.splitlines()) + "\n" + text, nl=False)


def _free(path: Path) -> Path:
    """The path of a file that isn't there yet, in a folder that is."""
    path = path.absolute()
    if path.exists():
        raise UserError("there is something already", where=str(path), fix="name another file: --output FILE")
    if not path.parent.is_dir():
        raise UserError("there is no such folder", where=str(path.parent), fix="make it, or name another file")
    return path


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Paragraphs and tables."""
    best, shape, memory = found["best"], found["shape"], found["memory_bytes"]
    counted = "" if found["counted"] == "all" else " without embeddings"
    yield (
        f"{found['flops']:.4g} FLOPs by {found['rule']}: {best['parameters']:.4g} parameters{counted}, "
        f"{best['tokens']:.4g} tokens"
    )
    rows = [
        ("layers x width, heads", f"{shape['layers']} x {shape['dim']:,}, {shape['heads']}"),
        ("parameters", f"{found['parameters']:,}"),
        ("  without embeddings", f"{found['without_embeddings']:,}"),
        ("tokens", f"{found['tokens']:,}"),
        ("  per parameter", f"{found['tokens'] / found['parameters']:.1f}"),
        ("steps", f"{found['steps']:,}"),
        ("tokens per step", f"{found['tokens_per_step']:,}"),
        ("FLOPs, counted", "n/a" if found["flops_counted"] is None else f"{found['flops_counted']:.4g}"),
    ]
    if found["loss"] is not None:
        rows.append(("loss by the law, nats per token", f"{found['loss']:.3f}"))
    yield output.table(rows, right=True)
    kept = found["memory_of"]
    yield f"memory, one replica, {kept['dtype']}, {kept['rows']:,} x {kept['tokens']:,} tokens at a time"
    parts = ("weights", "gradients", "optimizer", "activations")
    yield output.table([(part, _size(memory[part])) for part in parts], right=True)
    yield f"time at {found['utilisation']:.0%} of the peak, and how many devices the state must be spread over"
    yield output.table([_device(each) for each in found["devices"]])
    for note in found["notes"]:
        yield f"note: {note}"


def _device(each: Mapping[str, Any]) -> tuple[str, ...]:
    least = each["least_devices"]
    fits = "memory unknown" if each["memory"] is None else "activations don't fit" if least is None else f"{least:,}"
    return (each["name"], each["title"], f"{each['peak'] / 1e12:,.0f} TFLOP/s", _time(each["hours"]), fits)


def _time(hours: float) -> str:
    """Hours of one device in the unit that people would use."""
    for size, unit in ((24 * 365.25, "years"), (24, "days"), (1, "hours"), (1 / 60, "minutes")):
        if hours >= size:
            return f"{hours / size:,.1f} {unit}"
    return f"{hours * 3600:,.1f} seconds"


def _size(count: int | None) -> str:
    return "n/a" if count is None else f"{count / 1e9:,.2f} GB"
