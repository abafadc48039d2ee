"""One recipe out of several layers: bases, the recipe itself, overrides; the later one wins.

Mappings merge key by key; lists and values are replaced. A section that is given another component's name is
replaced as a whole, so that nothing of the old component leaks into the new one; the same name, or none, merges.
"""

from __future__ import annotations

from collections.abc import Sequence

from zoo.config import Slot
from zoo.errors import UserError
from zoo.recipe.node import KeyPath, Node, Origin, dotted, split_path
from zoo.recipe.shape import KEYS, SECTIONS, FindShape, Shapes, name_of
from zoo.recipe.source import read_text


def read_override(assignment: str, number: int) -> Node:
    """The layer that ``a.b.c=value`` stands for; ``number`` counts overrides from 1.

    Raises:
        UserError: no ``=``, no key path before it, or no YAML value after it.
    """
    where = f"override {number}: {assignment}"
    key, equals, text = assignment.partition("=")
    try:
        path = split_path(key.strip())
    except ValueError as error:
        raise UserError(
            str(error), where=where, fix="write key.path=value, for example trainer.max_steps=500"
        ) from None
    if not equals:
        raise UserError("an override needs a value", where=where, fix=f"write {key}=VALUE")
    if path[0] == "base":
        raise UserError("a base can't be set by an override", where=where, fix="write a recipe with that base")
    closing = {"{": "}", "[": "]"}.get(text.strip()[:1], "")
    if not text.rstrip().endswith(closing):
        fix = f"put the whole override in quotes, or the shell cuts it at its spaces: '{key}={text} ...{closing}'"
        raise UserError(f"this isn't YAML: the value has no closing {closing}", where=where, fix=fix)
    value = read_text(text, lambda _, scalar: Origin("override", None, number, assignment))
    if value.value is None and text.strip().startswith("#"):
        raise UserError(f"YAML reads {text.strip()!r} as a comment", where=where, fix=f"quote it: {key}='\"{text}\"'")
    for part in reversed(path):
        value = Node({part: value}, value.origin)
    return value


def merge(layers: Sequence[Node], shapes: Shapes) -> Node:
    """The layers as one mapping; each value keeps its origin.

    Raises:
        UserError: knobs without a name over a list of components.
    """
    merged = Node({}, Origin("recipe"))
    for layer in layers:
        merged = _Merge(shapes).recipe(merged, layer)
    return merged


def _later(old: Node, new: Node) -> Origin:
    """Origin of a mapping or list that is changed, not replaced: an override reaches inside and leaves it."""
    return old.origin if new.origin.kind == "override" else new.origin


def _says_nothing(key: str, node: Node) -> bool:
    """Whether a file has a top-level key with nothing below it."""
    return node.value is None and key in KEYS and key != "seed" and node.origin.kind != "override"


def _constant(slot: Slot | None) -> FindShape:
    return lambda: slot


class _Merge:
    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes

    def recipe(self, old: Node, new: Node) -> Node:
        assert isinstance(old.value, dict) and isinstance(new.value, dict)
        result = dict(old.value)
        for key, value in new.value.items():
            if _says_nothing(key, value):
                continue
            slot = SECTIONS.get(key)
            result[key] = self.node(result[key], value, (key,), _constant(slot)) if key in result else value
        return Node(result, _later(old, new))

    def node(self, old: Node, new: Node, path: KeyPath, shape: FindShape) -> Node:
        """``new`` over ``old``."""
        if isinstance(new.value, str):
            return self.named(old, new, shape)
        if not isinstance(new.value, dict):
            return new
        if isinstance(old.value, list):
            return new if "name" in new.value else self.items(old, new, path, shape)
        if isinstance(old.value, str):
            old = Node({"name": old}, old.origin)
        if not isinstance(old.value, dict) or self.is_other(old.value, new.value, shape):
            return new
        return Node(self.mapping(old.value, new.value, path, shape), _later(old, new))

    def named(self, old: Node, new: Node, shape: FindShape) -> Node:
        """A string over a section is a name; over anything else a value."""
        if not isinstance(old.value, dict) or not isinstance(shape(), Slot):
            return new
        section = {"name": new}
        return new if self.is_other(old.value, section, shape) else Node({**old.value, **section}, new.origin)

    def is_other(self, old: dict[str, Node], new: dict[str, Node], shape: FindShape) -> bool:
        """Whether a section changes to another component. One with neither name nor default still waits for one."""
        name = name_of(new)
        if name is None:
            return False
        before = name_of(old)
        if before is None:
            slot = shape()
            before = slot.default if isinstance(slot, Slot) else None
        return before not in (None, "", name)

    def mapping(self, old: dict[str, Node], new: dict[str, Node], path: KeyPath, shape: FindShape) -> dict[str, Node]:
        result = dict(old)
        if "name" in new:
            result["name"] = new["name"]  # first: the slots below depend on it
        for key, value in new.items():
            inside = self.shapes.below(shape, result, key)
            result[key] = self.node(old[key], value, (*path, key), inside) if key in old else value
        return result

    def items(self, old: Node, new: Node, path: KeyPath, shape: FindShape) -> Node:
        """Keys that are indices change items of a list; that is how an override reaches one."""
        assert isinstance(old.value, list) and isinstance(new.value, dict)
        result = list(old.value)
        for key, value in new.value.items():
            if not (key.isascii() and key.isdigit() and int(key) < len(result)):
                raise UserError(
                    f"{dotted(path)} is a list of {len(result)}, so {dotted((*path, key))} is no place in it",
                    where=str(value.origin),
                    fix=f"count items from 0 ({dotted((*path, '0'))}), or replace the whole list",
                )
            result[int(key)] = self.node(result[int(key)], value, (*path, key), shape)
        return Node(result, _later(old, new))
