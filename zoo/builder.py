"""The only place where names become modules: a checked recipe in, parts, models, data and tasks out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import torch

from zoo.component import did_you_mean
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Data, Description
from zoo.contracts.executor import Executor
from zoo.contracts.optimizer import Optimizer
from zoo.contracts.schedule import Schedule
from zoo.contracts.task import Task
from zoo.contracts.weights import Weights, below
from zoo.errors import UserError
from zoo.initialization import NotFilledError
from zoo.recipe.typed import Misfit, advice, fit

if TYPE_CHECKING:
    from zoo.component import Component
    from zoo.config import Slot
    from zoo.recipe import Recipe
    from zoo.registry import Registry

SIZES = tuple(field.name for field in dataclasses.fields(Description))
"""Fields of an architecture's Config that may be null in a recipe: the data fills them in."""


def sizes_from_data(recipe: Recipe) -> list[str]:
    """The sizes that a recipe's model must know and that the recipe leaves to the data."""
    return [name for name in _sizes_taken(recipe) if getattr(recipe.config("architecture"), name) is None]


def _sizes_taken(recipe: Recipe) -> list[str]:
    """The sizes that the embedding and the head must know."""
    slots = recipe.component("architecture").load().slots
    parts = [recipe.component(f"architecture.{name}").load() for name in ("embedding", "head") if name in slots]
    return [name for name in SIZES if any(name in part.takes for part in parts)]


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


def build_executor(settings: Mapping[str, Any], registry: Registry) -> Executor:
    """The executor of a comparison.

    Args:
        settings: its ``name`` and its knobs.
        registry: where it is found.

    Raises:
        UserError: there is none of that name, it has no such knob, a value that doesn't fit, a package that it lacks.
    """
    knobs = {key: value for key, value in settings.items() if key != "name"}
    component = registry.find("executor", settings["name"], where="compare.executor")
    config = component.load().Config
    hints = get_type_hints(config)
    for key, value in knobs.items():
        where = f"compare.executor.{key}"
        if key not in hints:
            what = f"executor {component.name} has no knob {key}{did_you_mean(key, hints)}"
            raise UserError(what, where=where, fix=f"choose one of {', '.join(hints)}")
        try:
            knobs[key] = fit(value, hints[key])
        except Misfit as misfit:
            raise UserError(f"{key} {misfit}", where=where, fix=advice(misfit, str(value))) from misfit
    try:
        executor: Executor = component.load()(config(**knobs))
    except ValueError as error:
        raise UserError(str(error), where="compare.executor", fix="change the value") from error
    return executor


def build_weights(recipe: Recipe) -> Weights | None:
    """The weights that a recipe starts from, whose file is there; ``None`` where it starts from none.

    Raises:
        UserError: no path, no file, weights for another architecture.
    """
    if "weights" not in recipe.tree:
        return None
    weights: Weights = _make(recipe, "weights")
    path, architecture = weights.config.path, recipe.component("architecture").name
    if path is None:
        raise UserError("weights.path isn't set", where=recipe.where("weights"), fix="give it: weights.path=FILE")
    if not weights.fits(architecture):
        raise UserError(
            f"weights {recipe.component('weights').name} are for {weights.architecture}, not for {architecture}",
            where=recipe.where("weights"),
            fix="choose another architecture or another format of weights",
        )
    if not weights.file(path.expanduser()).is_file():
        raise UserError(
            "there is no such file", where=f"{path}, of {recipe.where('weights.path')}", fix="check the path"
        )
    return weights


def check_buildable(recipe: Recipe) -> None:
    """Build all but the data, the model on the meta device, so that what can't be built is known before data is read.

    Raises:
        UserError: as the other functions here, for whatever doesn't depend on the data.
    """
    recipe.component("task")
    build_schedule(recipe)
    smallest = recipe.component("architecture.embedding").load().smallest(recipe.config("architecture.embedding"))
    sizes = recipe.config("architecture")
    said = {name: getattr(sizes, name) for name in _sizes_taken(recipe) if getattr(sizes, name) is not None}
    model = build_model(recipe, dataclasses.replace(smallest, **said), device="meta")
    with blaming(recipe, "optimizer"):
        build_optimizer(recipe).over(model)


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
        factories = _slot_factories(recipe, "architecture")
        model: Architecture = recipe.component("architecture").load()(config, **factories)
    _check_dealt(recipe, factories)
    _freeze(model, recipe)
    if torch.device(device).type != "meta":
        _initialize(model, recipe)
    return model


def _freeze(model: Architecture, recipe: Recipe) -> None:
    """Keep the parameters of what ``training.freeze`` names as they are; its dropout is off, so it is one function."""
    modules = dict(model.named_modules())
    for index, part in enumerate(recipe.training.freeze):
        held = [parameter for name, parameter in model.named_parameters() if below(name, [part])]
        if not held:
            known = [name for name, module in modules.items() if name and any(True for _ in module.parameters())]
            raise UserError(
                f"{part!r} is no part of the model that has parameters{did_you_mean(part, known)}",
                where=recipe.where(f"training.freeze.{index}"),
                fix=f"name a part: {', '.join(name for name, _ in model.named_children())}, or one inside of these",
            )
        for parameter in held:
            parameter.requires_grad_(False)
        if part in modules:
            modules[part].eval()
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(
            "training.freeze leaves no parameter to train",
            where=recipe.where("training.freeze"),
            fix="leave out a part, for example the head",
        )


def _check_dealt(recipe: Recipe, factories: dict[str, Any]) -> None:
    """Refuse a list that is longer than the layers over which it is dealt out: its last parts would be nowhere."""
    for made in factories.values():
        listed = made if isinstance(made, list) else []
        layers = sum(factory.used for factory in listed)
        if 0 < layers < len(listed):
            path = listed[0].path.rpartition(".")[0]
            raise UserError(
                f"{path} lists {len(listed)} parts for {layers} layers; no layer would use the last of them",
                where=recipe.where(path),
                fix=f"shorten the list, or give the architecture at least {len(listed)} layers",
            )


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
        _check_task(recipe)
    for name, slot in architecture.slots.items():
        if slot.kind == "attention" and not _is_only_a_default(architecture, name):
            _check_attention(recipe, name, slot)
        if slot.kind == "position" and "embedding" in architecture.slots:
            _check_grid(recipe, name)


def _check_task(recipe: Recipe) -> None:
    """A task's needs are met by the architecture, its embedding and its head together."""
    task, architecture = recipe.component("task"), recipe.component("architecture")
    if "cross" in architecture.load().offers and not task.load().gives_source:
        raise UserError(
            f"architecture {architecture.name} reads a source beside its input, and task {task.name} gives it none",
            where=recipe.where("task"),
            fix="choose another architecture, or a task with a source, as seq2seq",
        )
    slots = recipe.component("architecture").load().slots
    places = ["architecture", *(f"architecture.{name}" for name in ("embedding", "head") if name in slots)]
    offers = {place: recipe.component(place).load().offers for place in places}
    missing = task.load().needs - frozenset().union(*offers.values())
    if not missing:
        return
    word = min(missing)
    told = "; ".join(f"{recipe.component(place).name} offers {', '.join(sorted(offers[place]))}" for place in places)
    kinds = [place.rpartition(".")[2] for place in places]
    able = [f"{kind} {name}" for kind in kinds for name in _offering(recipe, kind, frozenset({word}))]
    raise UserError(
        f"task {task.name} needs a model that offers '{word}'; {told}",
        where=recipe.where("task"),
        fix=f"choose another task, or one of: {', '.join(able)}",
    )


def _is_only_a_default(architecture: type[Architecture], name: str) -> bool:
    """Whether a slot is used through the slots that are ``like`` it alone."""
    return any(slot.like == name for slot in architecture.slots.values())


def _check_attention(recipe: Recipe, name: str, slot: Slot) -> None:
    """An attention offers what its slot and the positions beside it need."""
    needs = dict.fromkeys(sorted(slot.needs), recipe.component("architecture").name)
    beside = f"{name.rpartition('.')[0]}.position".lstrip(".")
    if beside in recipe.component("architecture").load().slots and "cross" not in slot.needs:
        needs |= _needs_of_positions(recipe, _places(recipe, beside))
    for component, _ in _parts(recipe, name):
        offers = component.load().offers
        if missing := {word: by for word, by in needs.items() if word not in offers}:
            word, by = next(iter(missing.items()))
            raise UserError(
                f"{by} needs an attention that offers '{word}'; {component.name} offers {', '.join(sorted(offers))}",
                where=recipe.where(f"architecture.{name}"),
                fix=f"choose one of: {', '.join(_offering(recipe, 'attention', frozenset(needs)))}",
            )


def _needs_of_positions(recipe: Recipe, places: Iterable[str]) -> dict[str, str]:
    """Word → who needs it, for position schemes and those in slots of theirs."""
    needs: dict[str, str] = {}
    for place in places:
        component = recipe.component(place)
        needs |= dict.fromkeys(sorted(component.load().needs()), f"position {component.name}")
        for name, slot in component.load().slots.items():
            if slot.kind == "position":
                needs |= _needs_of_positions(recipe, recipe.places(f"{place}.{name}"))
    return needs


def _check_grid(recipe: Recipe, name: str) -> None:
    """A position scheme with two axes has a grid to stand on."""
    embedding = recipe.component("architecture.embedding")
    for component, _ in _parts(recipe, name):
        if component.load().axes > 1 and "grid" not in embedding.load().offers:
            raise UserError(
                f"position {component.name} needs an embedding that offers 'grid'; "
                f"{embedding.name} offers {', '.join(sorted(embedding.load().offers))}",
                where=recipe.where(f"architecture.{name}"),
                fix=f"choose one of: {', '.join(_offering(recipe, 'embedding', frozenset({'grid'})))}",
            )


def _parts(recipe: Recipe, name: str) -> list[tuple[Component, Any]]:
    """What a slot of the architecture holds, or the slot that it is like where it is empty."""
    return [(recipe.component(place), recipe.config(place)) for place in _places(recipe, name)]


def _places(recipe: Recipe, name: str) -> list[str]:
    """Key paths of what ``_parts`` gives."""
    slot = recipe.component("architecture").load().slots[name]
    return recipe.places(f"architecture.{name}") or (_places(recipe, slot.like) if slot.like else [])


def _offering(recipe: Recipe, kind: str, words: frozenset[str]) -> Iterator[str]:
    """Names of the components of a kind that offer all of some words."""
    for component in recipe.registry.components(kind):
        if component.status == "ok" and words <= component.load().offers:
            yield component.name


def _with_data_sizes(recipe: Recipe, description: Description) -> Any:
    """The architecture's Config with null sizes from the data; a larger value stands, a smaller one is refused."""
    config = recipe.config("architecture")
    for name in _sizes_taken(recipe):
        said, found = getattr(config, name), getattr(description, name)
        if said is None:
            config = dataclasses.replace(config, **{name: found})
        elif found is not None and _is_smaller(said, found):
            enough = str(found) if isinstance(found, tuple) else f"at least {found}"
            raise UserError(
                f"architecture.{name} is {said}, the data needs {found}",
                where=recipe.where(f"architecture.{name}"),
                fix=f"set it to null, which means the data's, or to {enough}",
            )
    return config


def _is_smaller(said: Any, found: Any) -> bool:
    return tuple(said) != tuple(found) if isinstance(found, tuple) else bool(said < found)


def _slot_factories(recipe: Recipe, path: str) -> dict[str, Any]:
    """A factory, or for a list several, for each slot of a component."""
    factories: dict[str, Any] = {}
    for name, slot in recipe.component(path).load().slots.items():
        made = [_Factory(recipe, place) for place in recipe.places(f"{path}.{name}")]
        if made:
            factories[name.replace(".", "_")] = made if slot.cycled else made[0]
    return factories


class _Factory:
    """Makes a part; what its constructor refuses is blamed on its own place in the recipe.

    Attributes:
        path: the place.
        used: whether anybody asked for the part.
    """

    def __init__(self, recipe: Recipe, path: str) -> None:
        self.path, self.used = path, False
        self._recipe = recipe

    def __call__(self, **parent: Any) -> Any:
        self.used = True
        with blaming(self._recipe, self.path):
            return _make(self._recipe, self.path, **parent, **_slot_factories(self._recipe, self.path))


def _slot_objects(recipe: Recipe, path: str) -> dict[str, Any]:
    """The component of each slot, made at once: a data set's tokenizer needs nothing of its parent."""
    return {name: factory() for name, factory in _slot_factories(recipe, path).items()}


def _make(recipe: Recipe, path: str, **given: Any) -> Any:
    return recipe.component(path).load()(recipe.config(path), **given)


@contextmanager
def blaming(recipe: Recipe, path: str) -> Iterator[None]:
    """Turn a constructor's ValueError into a message that names the place in the recipe."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error), where=recipe.where(path), fix="change the value in the recipe") from error
