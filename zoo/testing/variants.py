"""The configurations of a component that a check goes through: its defaults, then one knob changed at a time."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from zoo.config import Part, knobs

_SMALL = 3
"""For windows, chunks, ranks and the like: within reach of the kit's short inputs, whatever the default."""

_FORWARD_ONLY = "flex"
"""A kernel that has no gradients on a CPU, which most checks want; the checks of kernels take it too."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """Knobs that differ from the defaults, none or one, or another part in a slot."""

    knobs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, type[Part]] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """``kv_heads=1``; empty for the defaults."""
        said = {**self.knobs, **{name: part.__name__ for name, part in self.parts.items()}}
        return ", ".join(f"{name}={value}" for name, value in said.items())


def variants(
    component: type[Part], accepts: Callable[[Variant], bool], parts: Mapping[str, Sequence[type[Part]]] | None = None
) -> list[Variant]:
    """The defaults, then each other value of a choice or a switch, fewer key/value heads, and small whole numbers.

    Args:
        component: the class.
        accepts: whether the component can be made so; what it refuses is left out.
        parts: of a module, kind → what to put into slots of that kind, beside their defaults; ``None`` for what
            is no module, and has no whole numbers that short inputs would never reach.
    """
    changed = [Variant({name: value}) for name, value in _changes(component, small=parts is not None)]
    fitting = parts or {}
    changed += [
        Variant(parts={name: part}) for name, slot in component.slots.items() for part in fitting.get(slot.kind, ())
    ]
    return [Variant(), *filter(accepts, changed)]


def _changes(component: type[Part], *, small: bool) -> Iterator[tuple[str, Any]]:
    for knob in knobs(component.Config):
        if knob.name == "kv_heads":
            yield from (("kv_heads", count) for count in (1, 2))
        elif small and knob.type is int and knob.default > _SMALL:
            yield knob.name, _SMALL
        elif knob.type is bool:
            yield knob.name, not knob.default
        elif typing.get_origin(knob.type) is Literal:
            values = [value for value in typing.get_args(knob.type) if value not in (knob.default, _FORWARD_ONLY)]
            yield from ((knob.name, value) for value in values)
