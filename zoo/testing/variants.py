"""The configurations of a component that a check goes through: its defaults, then one knob changed at a time."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from zoo.config import Part, knobs


@dataclasses.dataclass(frozen=True)
class Variant:
    """Knobs that differ from the defaults, none or one."""

    knobs: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """``kv_heads=1``; empty for the defaults."""
        return ", ".join(f"{name}={value}" for name, value in self.knobs.items())


def variants(component: type[Part], accepts: Callable[[Mapping[str, Any]], bool]) -> list[Variant]:
    """The defaults, then each other value of a knob that is a choice or a switch, fewer key/value heads, a window.

    Args:
        component: the class.
        accepts: whether the component can be made with some knobs; what it refuses is left out.
    """
    changes = [{name: value} for name, value in _changes(component) if accepts({name: value})]
    return [Variant(), *map(Variant, changes)]


def _changes(component: type[Part]) -> Iterator[tuple[str, Any]]:
    for knob in knobs(component.Config):
        if knob.name == "kv_heads":
            yield from (("kv_heads", count) for count in (1, 2))
        elif knob.name == "window" and knob.type is int:
            yield "window", 3  # within reach of the kit's short inputs, whatever the default
        elif knob.type is bool:
            yield knob.name, not knob.default
        elif typing.get_origin(knob.type) is Literal:
            yield from ((knob.name, value) for value in typing.get_args(knob.type) if value != knob.default)
