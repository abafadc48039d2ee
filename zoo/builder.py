"""The only place where names become modules: a checked recipe in, parts, models, data and tasks out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Data, Description
from zoo.contracts.optimizer import Optimizer
from zoo.contracts.schedule import Schedule
from zoo.contracts.task import Task
from zoo.errors import UserError
from zoo.initialization import NotFilledError

if TYPE_CHECKING:
    from zoo.component import Component
    from zoo.recipe import Recipe

FROM_DATA = ("vocab_size", "max_length", "classes", "image_size", "channels")
"""Fields of an architecture's Config that may be null in a recipe: the data fills them in."""


def build_data(recipe: Recipe, cache: Path) -> Data:
    """The data set of a recipe, not prepared yet."""
    with blaming(recipe, "data"):
        return _make(recipe, "data", cache=cache, **_slot_objects(recipe, "data"))


def build_task(recipe: Recipe, data: Data) -> Task:
    """The task of a recipe over prepared data."""
    with blaming(recipe, "task"):
        return _make(recipe, "task", data=data)


def build_optimizer(recipe: Recipe) -> Optimizer:
    """The optimizer component of a recipe."""
    with blaming(recipe, "optimizer"):
        return _make(recipe, "optimizer")


def build_schedule(recipe: Recipe) -> Schedule:
    """The schedule of a recipe over its ``trainer.max_steps``."""
    with blaming(recipe, "schedule"):
        return _make(recipe, "schedule", steps=recipe.trainer["max_steps"])


def check_buildable(recipe: Recipe) -> None:
    """Build all but the data, the model on the meta device, so that what can't be built is known before data is read.

    Raises:
        UserError: as the other functions here, for whatever doesn't depend on the data.
    """
    recipe.component("task")
    build_schedule(recipe)
    model = build_model(recipe, Description(vocab_size=1, max_length=1), device="meta")
    with blaming(recipe, "optimizer"):
        build_optimizer(recipe).make(model.named_parameters())


def build_model(
    recipe: Recipe, description: Description | None = None, *, device: torch.device | str = "cpu"
) -> Architecture:
    """The model of a recipe with its initial values.

    Args:
        recipe: a checked recipe.
        description: sizes of the data, for fields of the architecture that are null.
        device: where the model is made; on ``meta`` it has shapes and no values.

    Raises:
        UserError: sizes that don't fit each other or the data, parts that can't work together.
    """
    check_parts(recipe)
    config = _with_data_sizes(recipe, description or Description())
    with blaming(recipe, "architecture"), torch.device(device):
        model: Architecture = recipe.component("architecture").load()(config, **_slot_factories(recipe, "architecture"))
    if torch.device(device).type != "meta":
        _initialize(model, recipe)
    return model


def _initialize(model: Architecture, recipe: Recipe) -> None:
    try:
        model.initialize(recipe.seed)
    except NotFilledError as error:
        fix = "fill every parameter of the class itself in a method initial(name, parameter, generator)"
        raise UserError(str(error), where=recipe.where("architecture"), fix=fix) from error


def check_parts(recipe: Recipe) -> None:
    """Refuse parts that can't work together; reads what they declare, builds nothing.

    Raises:
        UserError: names the word that is missing, who needs it, and the components that offer it.
    """
    architecture = recipe.component("architecture").load()
    if "task" in recipe.tree:  # a preset has none
        task = recipe.component("task").load()
        _refuse_missing(recipe, "task", task.needs - architecture.offers, "architecture", architecture.offers)
    if "attention" not in architecture.slots:
        return
    needs = dict.fromkeys(architecture.needs, "architecture")
    if "position" in architecture.slots:
        for component, _ in recipe.parts("architecture.position"):
            needs |= dict.fromkeys(component.load().needs(), f"position {component.name}")
    for component, _ in recipe.parts("architecture.attention"):
        offers = component.load().offers
        if missing := {word: by for word, by in needs.items() if word not in offers}:
            word, by = next(iter(missing.items()))
            raise UserError(
                f"{by} needs an attention that offers '{word}'; {component.name} offers {', '.join(sorted(offers))}",
                where=recipe.where("architecture.attention"),
                fix=f"choose one of: {', '.join(_offering(recipe, 'attention', frozenset(needs)))}",
            )


def _refuse_missing(recipe: Recipe, section: str, missing: frozenset[str], kind: str, offers: frozenset[str]) -> None:
    if missing:
        raise UserError(
            f"{section} {recipe.component(section).name} needs an {kind} that offers {', '.join(sorted(missing))}; "
            f"{recipe.component(kind).name} offers {', '.join(sorted(offers))}",
            where=recipe.where(section),
            fix=f"choose another {section} or {kind}",
        )


def _offering(recipe: Recipe, kind: str, words: frozenset[str]) -> Iterator[str]:
    """Names of the components of a kind that offer all of some words."""
    for component in recipe.registry.components(kind):
        if component.status == "ok" and words <= component.load().offers:
            yield component.name


def _with_data_sizes(recipe: Recipe, description: Description) -> Any:
    """The architecture's Config with null sizes from the data; a larger value stands, a smaller one is refused."""
    config = recipe.config("architecture")
    for field in dataclasses.fields(config):
        if field.name not in FROM_DATA:
            continue
        said, found = getattr(config, field.name), getattr(description, field.name)
        if said is None:
            config = dataclasses.replace(config, **{field.name: found})
        elif found is not None and _is_smaller(said, found):
            raise UserError(
                f"architecture.{field.name} is {said}, the data needs {found}",
                where=recipe.where(f"architecture.{field.name}"),
                fix=f"set it to null, which means the data's, or to at least {found}",
            )
    return config


def _is_smaller(said: Any, found: Any) -> bool:
    return tuple(said) != tuple(found) if isinstance(found, tuple) else said < found


def _slot_factories(recipe: Recipe, path: str) -> dict[str, Any]:
    """A factory, or for a list several, for each slot of an architecture."""
    factories: dict[str, Any] = {}
    for name, slot in recipe.component(path).load().slots.items():
        made = [_factory(recipe, f"{path}.{name}", *part) for part in recipe.parts(f"{path}.{name}")]
        factories[name] = made if slot.cycled else made[0]
    return factories


def _factory(recipe: Recipe, path: str, component: Component, config: Any) -> Callable[..., Any]:
    """Makes the part; what its constructor refuses is blamed on its own place in the recipe."""
    part = component.load()

    @functools.wraps(part)
    def make(**parent: Any) -> Any:
        with blaming(recipe, path):
            return part(config, **parent)

    return make


def _slot_objects(recipe: Recipe, path: str) -> dict[str, Any]:
    """The component of each slot, made at once: a data set's tokenizer needs nothing of its parent."""
    slots = recipe.component(path).load().slots
    return {name: _factory(recipe, f"{path}.{name}", *recipe.parts(f"{path}.{name}")[0])() for name in slots}


def _make(recipe: Recipe, path: str, **given: Any) -> Any:
    return recipe.component(path).load()(recipe.config(path), **given)


@contextmanager
def blaming(recipe: Recipe, path: str) -> Iterator[None]:
    """Turn a constructor's ValueError into a message that names the place in the recipe."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error), where=recipe.where(path), fix="change the value in the recipe") from error
