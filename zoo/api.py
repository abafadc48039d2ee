"""Functions of the Python interface that no other module has; torch is imported when one needs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.component import Component
from zoo.registry import Registry

if TYPE_CHECKING:
    from zoo.contracts.architecture import Architecture
    from zoo.contracts.data import Description
    from zoo.generation.text import Continuation, TextModel
    from zoo.recipe import Recipe


def components(kind: str | None = None, *, plugins: Sequence[str | Path] = ()) -> list[Component]:
    """Records of all components, or of one kind; what ``zoo list`` shows.

    Raises:
        UserError: an unknown kind, or a path that can't be a plugin.
    """
    return Registry.discover(plugins).components(kind)


def build(recipe: Recipe) -> Architecture:
    """The model of a recipe with its initial values; its data is read only if the recipe leaves sizes to it.

    Raises:
        UserError: parts or sizes that don't fit each other, or data that isn't there.
    """
    from zoo.builder import build_model

    return build_model(recipe, data_sizes(recipe))


def data_sizes(recipe: Recipe) -> Description | None:
    """What the architecture leaves to the data; ``None``, and the data is left alone, where it leaves nothing.

    Raises:
        UserError: data that isn't there or too short.
    """
    from zoo.builder import sizes_from_data
    from zoo.training.job import prepare_task

    return prepare_task(recipe).describe() if sizes_from_data(recipe) else None


def generate(run: str | Path | TextModel, prompts: Sequence[str] = ("",), **options: Any) -> list[Continuation]:
    """Continue prompts with a run folder's model, or with one that is loaded; what ``zoo generate`` prints.

    Args:
        run: a run folder, or what ``zoo.load`` gave.
        prompts: texts; an empty one starts a new text.
        options: ``max_new_tokens`` (200), and those of ``zoo.generation.continue_texts``.

    Raises:
        UserError: no run, an option out of range, a prompt that is too long.
    """
    from zoo.generation import continue_texts
    from zoo.training.run import load_run

    source: Any = load_run(run) if isinstance(run, str | Path) else run
    return continue_texts(source, prompts, **{"max_new_tokens": 200, **options})


def compare(
    source: str | Path,
    overrides: Sequence[str] = (),
    *,
    run: str | Path | None = None,
    plugins: Sequence[str | Path] = (),
    dry_run: bool = False,
) -> dict[str, Any]:
    """Run a comparison, or go on with one, each cell in a process of its own; what ``zoo compare --json`` prints.

    Args:
        source: a recipe with a ``compare`` block, by path or name.
        overrides: ``key.path=value`` for every cell, or ``compare.key=value``.
        run: the folder; by default runs/RECIPE-N. In that of an earlier comparison only what is missing is run.
        plugins: component files and folders.
        dry_run: check every cell, run none and write nothing.

    Returns:
        ``folder``, ``cells`` and ``verdicts``.

    Raises:
        UserError: a mistake in the recipe, or no cell that can run; nothing was written.
        Interrupted: a signal came; what ran has saved its state.
    """
    from zoo.comparison.compare import compare_variants, plan
    from zoo.recipe import load_comparison
    from zoo.report.write import write_report

    comparison = load_comparison(source, overrides, plugins=plugins)
    folder = None if run is None else Path(run)
    if dry_run:
        return plan(comparison, folder)
    found = compare_variants(comparison, folder)
    write_report(Path(found["folder"]), comparison.registry)
    return found
