"""What belongs where in a recipe: the top-level keys, and the slots of the components named so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from zoo.config import Slot
from zoo.errors import UserError
from zoo.recipe.node import Node

if TYPE_CHECKING:
    from zoo.registry import Registry

SECTIONS: Mapping[str, Slot] = {
    "data": Slot("data", ""),
    "architecture": Slot("architecture", ""),
    "task": Slot("task", ""),
    "optimizer": Slot("optimizer", "adamw"),
    "schedule": Slot("schedule", "constant"),
    "weights": Slot("weights", "run"),
}
"""Top-level keys that hold a component; those without a default must be in every recipe."""

OPTIONAL = frozenset({"weights"})
"""Sections that are not there unless a recipe has them; their default is what they mean without a name."""

COMPARE = "compare"
"""Key of the block that makes a comparison of a recipe; ``zoo compare`` alone reads it."""

KEYS = ("base", "plugins", "seed", *SECTIONS, "training", "trainer", "logger", COMPARE)
"""All top-level keys, in the order in which a saved recipe has them."""

FindShape = Callable[[], "Slot | Mapping[str, Slot] | None"]
"""Looks up, when asked, what a key path holds: a component's slot, a group with slots below it, or neither."""


def group(slots: Mapping[str, Slot], key: str) -> dict[str, Slot]:
    """Slots below a group of knobs: ``{"attention": ...}`` of ``{"encoder.attention": ...}`` for ``encoder``."""
    return {name.removeprefix(f"{key}."): slot for name, slot in slots.items() if name.startswith(f"{key}.")}


def child(slots: Mapping[str, Slot], key: str) -> Slot | Mapping[str, Slot] | None:
    """What a key of a component or group holds."""
    return slots.get(key) or group(slots, key) or None


def name_of(value: object) -> str | None:
    """Name that a section says, as a string or under ``name``; ``None`` where it says none."""
    if isinstance(value, dict):
        value = value["name"].value if "name" in value else None
    return value if isinstance(value, str) else None


class Shapes:
    """Slots of components by kind and name; a component that can't be loaded has none."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def below(self, shape: FindShape, section: Mapping[str, Node], key: str) -> FindShape:
        """The shape of a key of a section, found when it is asked for, once the section has its name."""

        def find() -> Slot | Mapping[str, Slot] | None:
            here = shape()
            if isinstance(here, Slot):
                here = self._slots(here.kind, name_of(section) or here.default)
            return child(here, key) if here else None

        return find

    def _slots(self, kind: str, name: str) -> Mapping[str, Slot]:
        try:
            return self.registry.find(kind, name).load().slots
        except UserError:  # said with its place when the sections are read
            return {}
