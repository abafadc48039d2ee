"""A composed recipe: every value typed, every component found, every value's origin known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.component import Component
from zoo.errors import UserError
from zoo.recipe.compose import Composition, compose
from zoo.recipe.find import PRESET, RecipeFolders, base_layers, find_recipe, read_layers, without_base
from zoo.recipe.interpolation import as_written, at, unsafe_to_show
from zoo.recipe.lock import lock
from zoo.recipe.node import KeyPath, Node, Origin, absolute, dotted, from_python, split_path
from zoo.recipe.sections import Section
from zoo.recipe.source import write_text
from zoo.registry import Registry

if TYPE_CHECKING:
    from zoo.recipe.training import TrainingConfig

ABSENT = "(absent)"
"""Stands in a ``Change`` for a key that one of the two recipes doesn't have."""


class Change(NamedTuple):
    """A value that two recipes don't share."""

    path: str
    old: Any
    new: Any


class Recipe(Composition):
    """What ``load_recipe`` gives; to be read, not changed."""

    def __repr__(self) -> str:
        return f"Recipe({self.name!r})"  # short, and without the secrets of the tree

    @property
    def seed(self) -> int:
        """The seed of everything random in a run."""
        return self.tree["seed"]

    @property
    def trainer(self) -> dict[str, Any]:
        """Lightning's Trainer arguments; ``strategy`` is always a mapping with ``name``."""
        return self.tree["trainer"]

    @property
    def training(self) -> TrainingConfig:
        """The ``training`` section."""
        return self.configs["training",]

    @property
    def loggers(self) -> list[str]:
        """Names of the loggers, ``csv`` always among them."""
        return list(dict.fromkeys(["csv", *self.tree["logger"]]))

    @property
    def plugins(self) -> list[Path]:
        """Files and folders that its components come from, beyond installed packages."""
        return list(map(Path, self.tree["plugins"]))

    def component(self, path: str) -> Component:
        """The component of a section such as ``data`` or ``architecture.attention``.

        Raises:
            UserError: the recipe has no such section, as a preset may.
            ValueError: the slot is empty or holds several components.
        """
        component = self._section(path).component
        if component is None:
            raise ValueError(f"{path} takes no component")
        return component

    def config(self, path: str) -> Any:
        """The Config of a section such as ``data``, ``architecture.attention`` or ``training``.

        Raises:
            UserError, ValueError: as ``component``.
        """
        return self.configs[self._section(path).path]

    def parts(self, path: str) -> list[tuple[Component, Any]]:
        """Component and Config of each entry of a slot: one, or as many as its list has, or none if it is empty."""
        return [(self.component(place), self.config(place)) for place in self.places(path)]

    def places(self, path: str) -> list[str]:
        """Key paths of the entries of a slot: ``architecture.attention``, or ``architecture.attention.0`` and so on.

        Raises:
            UserError: the recipe has no such section.
        """
        keys = split_path(path)
        value = self._value(keys)
        if isinstance(value, list):
            return [dotted((*keys, str(index))) for index in range(len(value))]
        return [] if value is None else [path]

    def components(self) -> list[Component]:
        """All components that the recipe names, parents first."""
        return [section.component for section in self.sections.values() if section.component]

    def _section(self, path: str) -> Section:
        places = self.places(path)
        if len(places) != 1:
            raise ValueError(f"{path} holds {len(places)} components, not one; use parts")
        keys = split_path(places[0])
        if keys not in self.sections:
            raise self._lacks(keys)
        return self.sections[keys]

    def _value(self, keys: KeyPath) -> Any:
        try:
            return at(self.tree, keys)
        except KeyError:
            raise self._lacks(keys) from None

    def _lacks(self, keys: KeyPath) -> UserError:
        return UserError(
            f"recipe {self.name} names no {dotted(keys)}",
            where=str(self.file) if self.file else None,
            fix=f"name one: {dotted(keys)}=NAME, or write a recipe with `base: preset/{self.name}`",
        )

    def origin(self, path: str) -> Origin:
        """Where a value comes from; for what isn't there, the origin of the nearest section above it."""
        keys = split_path(path)
        while keys not in self.nodes:
            keys = keys[:-1]
        return self.nodes[keys].origin

    def where(self, path: str) -> str:
        """``file:line (key.path)``, for messages about a value."""
        return f"{self.origin(path)} ({path})"

    def explain(self) -> list[tuple[str, Any, Origin]]:
        """Every value with its key path and origin, in the order of the tree; secrets as they are written."""
        return [(path, value, self.origin(path)) for path, value in _leaves(self.shown())]

    def shown(self) -> dict[str, Any]:
        """The tree for eyes and logs: what comes from the environment stays as it is written."""
        return as_written(self.tree, unsafe_to_show(self.tree, self.texts))

    def to_yaml(self) -> str:
        """The recipe as composed, for the run folder: all defaults, absolute paths, interpolations as written."""
        return write_text(as_written(self.tree, self.texts))

    def lock(self) -> dict[str, Any]:
        """Plain values for recipe.lock.yaml: components, versions, seed."""
        return lock(self.components(), self.seed)

    def diff(self, other: Recipe) -> list[Change]:
        """Values in which ``other`` differs, in the order of the trees; ``ABSENT`` for a key that one lacks."""
        old, new = dict(_leaves(self.shown())), dict(_leaves(other.shown()))
        pairs = [Change(path, old.get(path, ABSENT), new.get(path, ABSENT)) for path in {**old, **new}]
        return [change for change in pairs if repr(change.old) != repr(change.new)]

    def with_overrides(self, *overrides: str) -> Recipe:
        """The same recipe with overrides ``key.path=value`` on top.

        Raises:
            UserError: as ``load_recipe``.
        """
        made = compose(
            [self.merged],
            overrides,
            name=self.name,
            file=self.file,
            registry=self.registry,
            fragment="task" not in self.tree,
        )
        return type(self)(**vars(made))

    def with_seed(self, seed: int) -> Recipe:
        """The same recipe with another seed, which is quick where no other value is made from it."""
        if any("seed" in text for text in self.texts.values()):
            return self.with_overrides(f"seed={seed}")
        node = Node(seed, self.origin("seed"))
        assert isinstance(self.merged.value, dict)
        return dataclasses.replace(
            self,
            merged=Node({**self.merged.value, "seed": node}, self.merged.origin),
            tree={**self.tree, "seed": seed},
            nodes={**self.nodes, ("seed",): node},
        )

    @classmethod
    def from_dict(
        cls,
        values: Mapping[str, Any],
        overrides: Sequence[str] = (),
        *,
        registry: Registry | None = None,
        name: str = "recipe",
        fragment: bool = False,
    ) -> Recipe:
        """A recipe out of plain Python values, or with ``fragment`` a preset; relative paths start at the working
        directory.

        Raises:
            UserError: as ``load_recipe``.
        """
        registry = registry or Registry.discover()
        node = from_python(values, Origin("recipe"))
        layers = [*base_layers(node, RecipeFolders(registry)), without_base(node)]
        made = compose(layers, overrides, name=name, file=None, registry=registry, fragment=fragment)
        return cls(**vars(made))


def load_recipe(
    source: str | Path,
    overrides: Sequence[str] = (),
    *,
    registry: Registry | None = None,
    plugins: Sequence[str | Path] = (),
) -> Recipe:
    """Read, compose and check a recipe; writes nothing and touches no data.

    Args:
        source: a YAML file, a run folder, or the name of a recipe or preset.
        overrides: ``key.path=value``, applied left to right; paths in them start at the working directory.
        registry: where components are found; by default everything that is installed, and ``ZOO_PLUGINS``.
        plugins: component files and folders, as ``--plugin`` gives them.

    Raises:
        UserError: the recipe isn't there, or one message for all mistakes in it.
    """
    paths = [absolute(str(plugin), Path.cwd()) for plugin in plugins]
    registry = registry or Registry.discover(plugins=paths)
    folders = RecipeFolders(registry)
    file = find_recipe(source, folders)
    name = file.parent.name if file.name == "recipe.yaml" else file.stem
    layers = read_layers(file, folders)
    is_preset = file.parent.name == PRESET
    made = compose(layers, overrides, name=name, file=file, registry=registry, plugins=paths, fragment=is_preset)
    return Recipe(**vars(made))


def _leaves(value: Any, path: KeyPath = ()) -> list[tuple[str, Any]]:
    """Key path and value of all that isn't a mapping or list, empty ones excepted."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [leaf for key, item in items for leaf in _leaves(item, (*path, str(key)))]
    return below or [(dotted(path), value)]
