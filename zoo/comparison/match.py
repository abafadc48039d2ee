"""The budget solver: gives a variant as much of a quantity as the others have, by the sizes of its parts.

What a variant may change, in this order; the first that reaches the value is taken:

1. the feed-forward size, from half to twice what it was,
2. the width, in steps that its heads allow, and the feed-forward size within half and twice its proportion to it,
3. the number of heads, up to twice as many, with both,
4. sizes of the attention's own (``OWN``), with all else as it was.

The feed-forward size has no part in a cache or a state; there the attention's own sizes come first, so that a model
needn't become narrow for the sake of its memory.

A recipe that is near enough stays as it is. Otherwise the nearest feed-forward size of a width is taken, not the first
that is near enough, so that variants don't all end at the same edge of the tolerance.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_type_hints

from zoo.comparison.quantities import QUANTITIES, empty_model, identity, measure
from zoo.comparison.search import Search, Sizes, crossing
from zoo.contracts.data import Description
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.recipe.node import split_path

__all__ = ["QUANTITIES", "Matched", "measure", "solve"]

OWN = ("size", "rank", "state_size", "window")
"""Knobs of an attention that size it."""

REMEMBERED = ("cache_bytes", "state")
"""Quantities that are the attention's alone."""
STEPS = (1, 2, 4, 8)
"""From one such size to the next: what rotates heads wants even ones."""
LARGEST = 2**16
"""Most steps that are tried."""

_known: dict[str, float] = {}
"""What was measured in this process: variants are solved anew for each task, and mostly have the same sizes there."""


class Matched(NamedTuple):
    """A recipe that has as much of a quantity as was asked for."""

    recipe: Recipe
    """With the overrides."""
    overrides: dict[str, Any]
    """Values by key path; empty where the recipe was near enough."""
    reached: float
    """How much it has."""
    residual: float
    """How far that is off, as a share of the value that was asked for."""
    quantity: str
    """What was matched."""
    value: float
    """What was asked for."""

    def line(self, variant: str) -> str:
        """``deep: 1,003,112 parameters, +0.31 % (architecture.dim=60)``, for people."""
        said = ", ".join(f"{key}={value}" for key, value in self.overrides.items()) or "as it was"
        return f"{variant}: {number(self.reached)} {self.quantity}, {self.residual:+.2%} ({said})"


def solve(
    recipe: Recipe, quantity: str, value: float, tolerance: float, description: Description | None = None
) -> Matched:
    """Change the sizes of a recipe, as little as may be, so that it has as much of something as is asked for.

    Args:
        recipe: a checked recipe that can be built.
        quantity: a key of ``QUANTITIES``.
        value: how much it shall have, above 0.
        tolerance: largest deviation, as a share of the value.
        description: sizes of its data.

    Raises:
        UserError: it has no such quantity, or can't come near enough; names the nearest values on both sides.
    """
    sizing = _Sizing(recipe, quantity, description)
    own = sizing.count({})  # says why, if there is no such quantity
    if abs(own - value) <= tolerance * value:
        return Matched(recipe, {}, own, (own - value) / value, quantity, value)
    search = Search(sizing.measure, sizing.exists, sizing.start, value, tolerance)
    own_sizes = _OwnSizes(sizing, value, tolerance)
    overrides = own_sizes.run() if quantity in REMEMBERED else None
    if overrides is None and (sizes := search.run()) is not None:
        overrides = sizing.overrides(sizes)
    if overrides is None and quantity not in REMEMBERED:
        overrides = own_sizes.run()
    if overrides is None:
        found = {_text(sizing.overrides(sizes)): count for sizes, count in search.measured.items() if count is not None}
        raise _refusal(recipe, quantity, value, tolerance, {**found, **own_sizes.measured})
    made = recipe.with_overrides(*_assignments(overrides))
    reached = measure(made, quantity, description)
    return Matched(made, overrides, reached, (reached - value) / value, quantity, value)


class _Sizing:
    """The sizes of a recipe, and the quantity that its model has with others."""

    def __init__(self, recipe: Recipe, quantity: str, description: Description | None) -> None:
        self.recipe, self.quantity, self.description = recipe, quantity, description
        sources = sorted(recipe.lock()["components"].items())
        self._identity = f"{identity(recipe, description)} {sources}"
        self._is_plain = not any(path[:1] == ("architecture",) for path in recipe.texts)

    @functools.cached_property
    def start(self) -> Sizes:
        """The sizes as they are."""
        config = self.recipe.config("architecture")
        first = next(iter(self._hidden.values()), 0)
        return Sizes(first, *(max(1, getattr(config, name, 1)) for name in ("dim", "heads")))

    def measure(self, sizes: Sizes) -> float | None:
        """The quantity at some sizes; ``None`` where there is no such model."""
        try:
            return self.count(self.overrides(sizes))
        except UserError:
            return None

    def exists(self, sizes: Sizes) -> bool:
        """Whether there is a model with some sizes."""
        try:
            empty_model(self.changed(self.overrides(sizes)), self.description)
        except UserError:
            return False
        return True

    def count(self, overrides: Mapping[str, Any], quantity: str | None = None) -> float:
        """The quantity, or another, with some overrides; counted once in a process.

        Raises:
            UserError: there is no such model.
        """
        quantity = quantity or self.quantity
        key = f"{quantity} {self._identity} {_text(overrides)}"
        if key not in _known:
            _known[key] = measure(self.changed(overrides), quantity, self.description)
        return _known[key]

    def changed(self, overrides: Mapping[str, Any]) -> Recipe:
        """The recipe with some overrides.

        Composing it anew takes longer than building its model, and is needed only where a value is made of others.
        """
        if not self._is_plain:
            return self.recipe.with_overrides(*_assignments(overrides))
        configs = dict(self.recipe.configs)
        for path, value in overrides.items():
            *place, name = split_path(path)
            if not hasattr(configs[tuple(place)], name):
                raise UserError(f"there is no {path}")
            try:
                configs[tuple(place)] = dataclasses.replace(configs[tuple(place)], **{name: value})
            except ValueError as error:
                raise UserError(str(error), where=path) from error
        return dataclasses.replace(self.recipe, configs=configs)

    def overrides(self, sizes: Sizes) -> dict[str, Any]:
        """Values by key path of what differs from the recipe."""
        found = {f"architecture.{name}": getattr(sizes, name) for name in ("dim", "heads")}
        found = {key: size for key, size in found.items() if size != getattr(self.start, key.partition(".")[2])}
        if found or sizes.hidden != self.start.hidden:  # what is null would follow the width by a rule of its own
            share = sizes.hidden / max(1, self.start.hidden)
            found |= {f"{place}.hidden": max(1, round(size * share)) for place, size in self._hidden.items()}
        return found

    def own(self) -> list[tuple[list[str], int]]:
        """Key paths of each knob of ``OWN``, of all attentions that have it, and a size to begin at."""
        found: dict[str, list[str]] = {}
        sizes: dict[str, int] = {}
        for place in self._places("attention"):
            config = self.recipe.config(place)
            hints = get_type_hints(type(config))
            for name in OWN:
                if hints.get(name) in (int, int | None):
                    found.setdefault(name, []).append(f"{place}.{name}")
                    sizes[name] = getattr(config, name) or self.start.dim
        return [(paths, sizes[name]) for name, paths in found.items()]

    def _places(self, kind: str) -> list[str]:
        """Where the recipe has parts of a kind."""
        slots = self.recipe.component("architecture").load().slots
        named = [name for name, slot in slots.items() if slot.kind == kind]
        return [place for name in named for place in self.recipe.places(f"architecture.{name}")]

    @functools.cached_property
    def _hidden(self) -> dict[str, int]:
        """The feed-forward size of each place that has a knob for it, found where the recipe leaves it to a rule."""
        configs = {place: self.recipe.config(place) for place in self._places("feed_forward")}
        return {
            place: config.hidden or self._ruled(f"{place}.hidden")
            for place, config in configs.items()
            if hasattr(config, "hidden")
        }

    def _ruled(self, path: str) -> int:
        """The size with which the model has as many parameters as with what the recipe leaves null."""

        def parameters(hidden: int) -> float:
            return self.count({path: hidden}, "parameters")

        usual = 4 * max(1, getattr(self.recipe.config("architecture"), "dim", 1))
        return max(1, crossing(parameters, usual, 1024 * usual, self.count({}, "parameters")))


class _OwnSizes:
    """Looks for sizes of the attention's own that reach a value, with all else as it is.

    Attributes:
        measured: the quantity with each override that was tried, as text.
    """

    def __init__(self, sizing: _Sizing, value: float, tolerance: float) -> None:
        self.sizing, self.value, self.tolerance = sizing, value, tolerance
        self.measured: dict[str, float] = {}

    def run(self) -> dict[str, Any] | None:
        """The first knob that comes near enough, in steps that there are models for."""
        for paths, start in self.sizing.own():
            for step in STEPS:
                at = functools.partial(self._at, paths, step)
                try:
                    size = self._nearest(at, max(1, start // step))
                except UserError:  # the next step may have models
                    continue
                if size is not None:
                    return dict.fromkeys(paths, size * step)
                break
        return None

    def _nearest(self, at: Callable[[int], float], start: int) -> int | None:
        if at(1) == at(start) == at(2 * start):
            return None
        below = crossing(at, start, LARGEST, self.value)
        deviation, place = min((abs(at(place) - self.value), place) for place in (below, below + 1) if place)
        return place if deviation <= self.tolerance * self.value else None

    def _at(self, paths: list[str], step: int, place: int) -> float:
        overrides = dict.fromkeys(paths, step * place)
        found = self.measured[_text(overrides)] = self.sizing.count(overrides)
        return found


def _refusal(recipe: Recipe, quantity: str, value: float, tolerance: float, tried: Mapping[str, float]) -> UserError:
    """What to say where nothing is near enough."""
    below = max((text for text in tried if tried[text] <= value), key=tried.__getitem__, default=None)
    above = min((text for text in tried if tried[text] >= value), key=tried.__getitem__, default=None)
    sides = [
        f"nothing {side} it" if text is None else f"{number(tried[text])} {side} it ({text})"
        for side, text in (("below", below), ("above", above))
    ]
    return UserError(
        f"{quantity} can't be brought within {tolerance:.3g} of {number(value)}; the nearest of {len(tried)} models "
        f"have {' and '.join(sides)}",
        where=recipe.where("architecture"),
        fix="allow a larger tolerance, match another value, or give the recipe other sizes to begin with",
    )


def _assignments(overrides: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in overrides.items()]


def _text(overrides: Mapping[str, Any]) -> str:
    return ", ".join(_assignments(overrides)) or "as it is"


def number(value: float) -> str:
    """``1,234,567``, with two decimals where it is no whole number."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
