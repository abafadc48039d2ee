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
    from zoo.builder import FROM_DATA, build_data
    from zoo.training.job import cache_folder

    config = recipe.config("architecture")
    if all(getattr(config, name, 0) is not None for name in FROM_DATA):
        return None
    data = build_data(recipe, cache_folder())
    data.prepare()
    return data.describe()


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
