"""The sections of a merged recipe: shorthand written out, components found, every default filled in."""

from __future__ import annotations

import dataclasses
import enum
import functools
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from zoo.component import Component, did_you_mean
from zoo.config import Slot
from zoo.errors import UserError
from zoo.recipe.interpolation import Interpolation, is_interpolated
from zoo.recipe.node import KeyPath, Node, Origin, absolute, dotted, from_python
from zoo.recipe.problems import Problems
from zoo.recipe.shape import group
from zoo.recipe.typed import holds_paths, members

if TYPE_CHECKING:
    from zoo.registry import Registry

MISSING = "???"
MAX_NESTED_PARTS = 20


@dataclasses.dataclass(frozen=True)
class Section:
    """A mapping of a recipe that a Config describes.

    Attributes:
        path: its place.
        config_class: the dataclass that its knobs belong to.
        component: who takes the knobs; ``None`` for ``training``.
    """

    path: KeyPath
    config_class: type
    component: Component | None = None

    @property
    def title(self) -> str:
        """How messages call it: ``attention multi_head``, ``training``."""
        return f"{self.component.kind} {self.component.name}" if self.component else self.path[0]


class Draft:
    """A recipe on its way from nodes to values.

    Attributes:
        nodes: the node, with its origin, of every place that was written or filled in.
        hints: the annotation of every knob, by place.
        sections: all sections, parents first.
        texts: interpolations that were followed to find a component, by place.
        unnamed: places of components without a name, noted already.
        incomplete: whether a section had to be left as it was written, its component being unknown.
    """

    def __init__(self, registry: Registry, merged: Node, problems: Problems) -> None:
        self.registry, self.problems = registry, problems
        self.interpolation = Interpolation(merged.plain())
        self.nodes: dict[KeyPath, Node] = {(): merged}
        self.hints: dict[KeyPath, Any] = {}
        self.sections: list[Section] = []
        self.texts: dict[KeyPath, str] = {}
        self.unnamed: set[KeyPath] = set()
        self.incomplete = False

    def where(self, path: KeyPath) -> str:
        """``file:line (key.path)`` of a place, or of the nearest written one above it."""
        return f"{self.nearest(path).origin} ({dotted(path)})"

    def nearest(self, path: KeyPath) -> Node:
        """The node at a place or the nearest one above it."""
        while path not in self.nodes:
            path = path[:-1]
        return self.nodes[path]

    def keep(self, node: Node, path: KeyPath) -> Any:
        """Note a node and all below it; its plain value."""
        self.nodes |= dict(node.walk(path))
        return node.plain()

    # Components

    def slot(self, slot: Slot, node: Node, path: KeyPath) -> Any:
        """What a slot holds: a mapping with ``name``, a list of these, or ``None`` in a slot without default."""
        self.nodes[path] = node
        node = self._followed(node, path)
        if node.value is None and not slot.default and len(path) > 1:
            return None
        if not isinstance(node.value, list):
            return self._part(slot, node, path)
        if not slot.cycled or not node.value:
            self._refuse("is an empty list" if slot.cycled else f"takes one {slot.kind}, not a list", path)
            return self.keep(node, path)
        return [self._item(slot, item, (*path, str(index))) for index, item in enumerate(node.value)]

    def _item(self, slot: Slot, node: Node, path: KeyPath) -> Any:
        self.nodes[path] = node
        return self._part(slot, self._followed(node, path), path)

    def _followed(self, node: Node, path: KeyPath) -> Node:
        """The node itself, or what its interpolation leads to."""
        if not is_interpolated(node.value):
            return node
        self.texts[path] = str(node.value)
        try:
            return from_python(self.interpolation.value(path), node.origin)
        except UserError as error:
            self.unnamed.add(path)
            self._refuse(f"can't be resolved: {error.what}", path, error.fix)
            return Node(None, node.origin)

    def _part(self, slot: Slot, node: Node, path: KeyPath) -> Any:
        """The mapping of one component: its name, then its knobs, then its slots."""
        given = node.value if isinstance(node.value, dict) else {"name": node}
        name_path = (*path, "name")
        unsaid = Origin("default", text=dotted(path[:-1]) or "every recipe") if slot.default else node.origin
        self.nodes[name_path] = given.get("name", Node(slot.default or MISSING, unsaid))
        name = self._name(slot, isinstance(node.value, dict), name_path)
        found = self._component(slot.kind, name, name_path) if name else None
        if not found:
            self.incomplete = True
            return self.keep(node, path)
        knobs = {key: child for key, child in given.items() if key != "name"}
        return {"name": name, **self.section(*found, knobs)}

    def _name(self, slot: Slot, is_mapping: bool, path: KeyPath) -> str | None:
        """The name of a component as a text; what is none is noted."""
        node = self.nodes[path]
        if is_mapping:
            node = self._followed(node, path)
        if isinstance(node.value, str) and node.value not in ("", MISSING):
            return node.value
        place = dotted(path[:-1])
        is_said = not self.unnamed.isdisjoint({path, path[:-1]})
        self.unnamed |= {path, path[:-1]}
        if node.value == MISSING:
            self._refuse("isn't set", path, f"name one {slot.kind}, for example with the override {place}=NAME")
        elif not is_said:
            quote = isinstance(node.value, bool | int | float)
            fix = f'quote it: "{node.text}"' if quote else f"write {place}: NAME"
            self._refuse(f"must be text, the name of one {slot.kind}", path, fix)
        return None

    def _component(self, kind: str, name: str, path: KeyPath) -> tuple[Section, Mapping[str, Slot]] | None:
        try:
            component = self.registry.find(kind, name, where=self.where(path))
            loaded = component.load(where=self.where(path))
        except UserError as error:
            self.problems.found.append(error)
            return None
        section = Section(path[:-1], loaded.Config, component)
        reason = _why_unreadable(loaded.Config, loaded.slots)
        if len(path) > MAX_NESTED_PARTS:
            reason = f"its parts are nested deeper than {MAX_NESTED_PARTS}"
        if reason:
            self.problems.add(f"{section.title} can't be used: {reason}", where=str(component.file))
            return None
        return section, loaded.slots

    # Knobs

    def section(self, section: Section, slots: Mapping[str, Slot], given: Mapping[str, Node]) -> dict[str, Any]:
        """Knobs and slots of a section; what nobody wrote has its default."""
        self.sections.append(section)
        return self._group(section, slots, given, _defaults(section.config_class))

    def _group(
        self, section: Section, slots: Mapping[str, Slot], given: Mapping[str, Node], defaults: Mapping[str, Any]
    ) -> dict[str, Any]:
        own = Origin("default", text=section.title)
        hints = typing.get_type_hints(section.config_class)
        result = {}
        for name, default in defaults.items():
            path, hint, inner = (*section.path, name), hints[name], group_class(hints[name])
            node = given.get(name, from_python(default, own))
            if inner and isinstance(node.value, dict):
                self.nodes[path] = node
                below = default if isinstance(default, dict) else _defaults(inner)
                written = node.value if name in given else {}
                result[name] = self._group(Section(path, inner, section.component), group(slots, name), written, below)
            else:
                result[name] = self._knob(hint, node, from_python(default, own), path)
        for name, slot in slots.items():
            if "." not in name:
                node = given.get(name, Node(slot.default or None, own))
                result[name] = self.slot(slot, node, (*section.path, name))
        self._refuse_unknown(section, given, list(result))
        return result

    def _knob(self, hint: Any, node: Node, default: Node, path: KeyPath) -> Any:
        if isinstance(node.value, dict) and isinstance(default.value, dict):
            node = Node({**default.value, **node.value}, node.origin)
        self.hints[path] = hint
        value = self.keep(node, path)
        return self._anchored(value, path) if holds_paths(hint) else value

    def _anchored(self, value: Any, path: KeyPath) -> Any:
        """Written paths made absolute, each from the folder of the file that says it."""
        if isinstance(value, dict):
            return {key: self._anchored(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._anchored(item, (*path, str(index))) for index, item in enumerate(value)]
        origin = self.nodes[path].origin
        is_path = isinstance(value, str) and value not in ("", MISSING) and not is_interpolated(value)
        return str(absolute(value, origin.folder)) if is_path and origin.kind != "default" else value

    def _refuse_unknown(self, section: Section, given: Mapping[str, Node], known: list[str]) -> None:
        for key in given:
            if key not in known:
                path = (*section.path, key)
                self.nodes[path] = given[key]
                fix = (
                    f"choose one of {', '.join(sorted(known))}" if known else f"remove it: {section.title} has no keys"
                )
                self._refuse(f"is no key of {section.title}{did_you_mean(key, known)}", path, fix)

    def _refuse(self, what: str, path: KeyPath, fix: str | None = None) -> None:
        self.problems.add(f"{dotted(path)} {what}", where=self.where(path), fix=fix)


@functools.cache
def _defaults(config_class: type) -> dict[str, Any]:
    """Plain values of a Config's fields, read only; ``???`` where a field has no default."""
    return plain(OmegaConf.to_container(OmegaConf.structured(config_class), enum_to_str=True))


def group_class(hint: Any) -> type | None:
    """The dataclass of a group of knobs, ``Stack`` or ``Stack | None``."""
    return next((member for member in members(hint) if dataclasses.is_dataclass(member)), None)  # type: ignore[return-value]


def _why_unreadable(config_class: type, slots: Mapping[str, Slot]) -> str | None:
    """What is wrong with a plugin's Config, which isn't the recipe's fault."""
    clashes = {field.name for field in dataclasses.fields(config_class)} & {"name", *slots}
    if clashes:
        return f"its Config has a field {clashes.pop()!r}, which is the name of a slot or the word `name`"
    try:
        _defaults(config_class)
    except (OmegaConfBaseException, NameError, TypeError) as error:
        return f"OmegaConf can't read its Config: {str(error).splitlines()[0]}"
    return None


def plain(value: Any) -> Any:
    """A value as YAML and JSON have it: tuples are lists, paths are text, members of an Enum their names."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.name
    return str(value) if isinstance(value, Path) else value
