"""A model of a given size: how deep, how wide, and with how many heads.

The width over the depth follows table 2.1 of Brown et al. 2020 (GPT-3, arXiv:2005.14165): 64 at 125 million parameters,
128 at 175 billion, a straight line in logarithms between and beyond. The loss depends little on it: over tenfold ratios
by 1 to 3 % (Kaplan et al. 2020, section 3.2, arXiv:2001.08361). Parameters are a line in the depth, and nearly a
parabola in the width, so a few shallow models, counted on the meta device, tell those of all; the best is then counted
in full.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from zoo.contracts.data import Description
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.scaling.ladder import Count, Counted, count

SMALLEST, LARGEST = 16, 32_768
"""Widths that are tried."""
DEEPEST = 256
"""Most layers that are tried."""
LEAST_HEAD = 8
LEAST_HEADS = 4
CLOSE = 0.02
"""A size that is off by this share is as bad as a shape that is off by a factor of 1.5."""
FARTHEST = 0.2
"""Logarithm of how far the size may be off."""
TRIED = 6
"""Models that are counted in full at most."""


class Shape(NamedTuple):
    """A model of about the size that was asked for."""

    layers: int
    """Depth."""
    dim: int
    """Width."""
    heads: int
    """Attention heads."""
    changes: dict[str, Any]
    """What a recipe says to get it, nested under ``architecture``."""
    recipe: Recipe
    """The recipe with these."""
    parameters: Count
    """Those of its model."""


def find_shape(recipe: Recipe, description: Description | None, parameters: float, counted: Counted) -> Shape:
    """The model of a recipe, with other sizes, that has about so many parameters.

    Args:
        recipe: of a causal model of tokens; its head size, and the proportions of its feed-forward and of its key and
            value heads are kept.
        description: sizes of its data, for those that its architecture leaves null.
        parameters: to be reached.
        counted: which parameters these are.

    Raises:
        UserError: an architecture without layers, dim and heads, or no model near that size.
    """
    return _Search(recipe, description, parameters, counted).best()


class _Search:
    def __init__(self, recipe: Recipe, description: Description | None, parameters: float, counted: Counted) -> None:
        self.recipe, self.description = recipe, description
        self.parameters, self.counted = parameters, counted
        self.config = recipe.config("architecture")
        if missing := [name for name in ("layers", "dim", "heads") if not hasattr(self.config, name)]:
            raise UserError(
                f"architecture {recipe.component('architecture').name} has no {' and no '.join(missing)} to plan",
                where=recipe.where("architecture"),
                fix="choose another recipe: --recipe gpt2",
            )
        self.ratio = 64 * (parameters / 1.25e8) ** (math.log(2) / math.log(1.75e11 / 1.25e8))
        self.period = math.lcm(*(len(places) for places in self._lists().values()), 1)

    def best(self) -> Shape:
        """The model whose size and shape are nearest to what is wanted, by the estimate; counted in full."""
        best: Shape | None = None
        refused: UserError | None = None
        for layers, dim in self._nearest():
            try:
                made = self._made(layers, dim)
            except UserError as error:
                refused = error
                continue
            if best is None or self._error(made) < self._error(best):
                best = made
            if self._error(best) < CLOSE:
                break
        if best is None:
            assert refused is not None
            raise refused
        if self._error(best) > FARTHEST:
            raise UserError(
                f"no model of {self.recipe.name} has about {self.parameters:,.0f} parameters; the nearest has "
                f"{best.parameters.of(self.counted):,} in {best.layers} layers of width {best.dim}",
                where=self.recipe.where("architecture"),
                fix="plan for other compute, or name a recipe with another vocabulary or another architecture",
            )
        return best

    def _nearest(self) -> Iterator[tuple[int, int]]:
        """Depths and widths of the best models by the estimate."""
        layers = np.arange(self.period, DEEPEST + 1, self.period)[:, None]
        dims = np.array([*_widths()])
        sizes = np.maximum(self._estimate(layers, dims), 1)
        shapes = np.log(dims / layers / self.ratio) / math.log(1.5)
        distances = (np.log(sizes / self.parameters) / CLOSE) ** 2 + shapes**2
        for place in distances.argsort(axis=None)[:TRIED]:
            row, column = np.unravel_index(place, distances.shape)
            yield int(layers[row, 0]), int(dims[column])

    def _error(self, shape: Shape) -> float:
        return abs(math.log(shape.parameters.of(self.counted) / self.parameters))

    def _estimate(self, layers: np.ndarray, dims: np.ndarray) -> np.ndarray:
        """Parameters by depth and width, from models of three widths and two depths each."""
        first, second = 2 * self.period, 3 * self.period
        middle = min(max(64, 64 * round((self.parameters / 12 * self.ratio) ** (1 / 3) / 64)), LARGEST // 2)
        widths = (middle // 2, middle, 2 * middle)
        shallow = np.array([self._made(first, dim).parameters.of(self.counted) for dim in widths])
        deep = np.array([self._made(second, dim).parameters.of(self.counted) for dim in widths])
        slopes = (deep - shallow) / (second - first)
        inside, outside = np.polyfit(widths, slopes, 2), np.polyfit(widths, shallow - first * slopes, 2)
        return np.polyval(outside, dims) + layers * np.polyval(inside, dims)

    def _made(self, layers: int, dim: int) -> Shape:
        heads = dim // self._head(dim)
        changes = {"layers": layers, "dim": dim, "heads": heads, **self._knobs(dim, heads)}
        said = [f"architecture.{key}={json.dumps(value)}" for key, value in _leaves(changes)]
        recipe = self.recipe.with_overrides(*said)
        return Shape(layers, dim, heads, changes, recipe, count(recipe, self.description))

    def _head(self, dim: int) -> int:
        """The recipe's head size, halved until there are a few heads of it."""
        size = self.config.dim // self.config.heads
        while size > LEAST_HEAD and (dim % size or dim // size < LEAST_HEADS):
            size //= 2
        return size if dim % size == 0 else math.gcd(dim, LEAST_HEAD)

    def _lists(self) -> dict[str, list[str]]:
        """The places of each slot of the architecture, more than one where it holds a list."""
        slots = self.recipe.component("architecture").load().slots
        return {name: self.recipe.places(f"architecture.{name}") for name in slots}

    def _knobs(self, dim: int, heads: int) -> dict[str, Any]:
        """Sizes that parts were given by number, in proportion; a list of parts is written anew."""
        changes: dict[str, Any] = {}
        for slot, places in self._lists().items():
            found = [self._scaled(place, dim, heads) for place in places]
            if not any(found):
                continue
            if places[0].endswith(slot):
                changes[slot] = found[0]
            else:
                old = [self._written(place) for place in places]
                changes[slot] = [{**part, **new} for part, new in zip(old, found, strict=True)]
        return changes

    def _written(self, place: str) -> dict[str, Any]:
        value: Any = self.recipe.tree
        for key in place.split("."):
            value = value[int(key)] if isinstance(value, list) else value[key]
        return dict(value)

    def _scaled(self, place: str, dim: int, heads: int) -> dict[str, int]:
        """New values of the knobs of one part that stand in proportion to the width or to the heads."""
        config = self.recipe.config(place)
        said = {name: getattr(config, name, None) for name in ("hidden", "kv_heads", "size")}
        new = {}
        if said["hidden"]:
            new["hidden"] = max(8, 8 * round(said["hidden"] * dim / self.config.dim / 8))
        if said["kv_heads"]:
            wanted = max(1, said["kv_heads"] * heads / self.config.heads)
            divisors = [number for number in range(1, heads + 1) if heads % number == 0]
            new["kv_heads"] = min(divisors, key=lambda number: abs(math.log(number / wanted)))
        if said["size"] and place.startswith("architecture.attention"):
            new["size"] = max(LEAST_HEAD, round(said["size"] * (dim / heads) / (self.config.dim / self.config.heads)))
        return new


def _widths() -> Iterator[int]:
    """Widths in steps of about 6 %, of which accelerators like the larger ones."""
    dim = SMALLEST
    while dim <= LARGEST:
        yield dim
        dim += 8 if dim < 128 else 32 if dim < 512 else 64 if dim < 2048 else 128 if dim < 8192 else 512


def _leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
