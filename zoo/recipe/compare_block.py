"""The ``compare`` block of a recipe, read and checked; what it says of the recipes of its cells is left alone."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from zoo.component import did_you_mean
from zoo.errors import UserError
from zoo.recipe.compose import LARGEST_SEED
from zoo.recipe.find import RecipeFolders, find_layer, read_layers
from zoo.recipe.node import KeyPath, Node, Origin, dotted, split_path
from zoo.recipe.problems import Problems
from zoo.recipe.shape import COMPARE, KEYS, name_of
from zoo.recipe.typed import Misfit, advice, fit

MAX_CELLS = 200_000
"""Cells of a comparison; a grid with more is a slip of the pen."""

VARIED = tuple(key for key in KEYS if key not in ("base", "seed", COMPARE))
"""Top-level keys that a variant may set."""


@dataclasses.dataclass(kw_only=True)
class CompareConfig:
    """The ``compare`` block of a recipe."""

    variants: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """What is compared: under each name, values by key path; ``{}`` is the recipe as it stands."""
    vary: dict[str, list] = dataclasses.field(default_factory=dict)
    """In place of ``variants``: values for each of some key paths; every choice of one each is a variant."""
    tasks: list[str] = dataclasses.field(default_factory=list)
    """Recipes, by path or name, on which each variant is tried; without any, the recipe itself is the one task."""
    seeds: int | list[int] = 3
    """Seeds of each variant and task: a list, or how many, counted up from the recipe's ``seed``."""
    baseline: str = ""
    """The variant that the others are held against; the first one unless named."""
    match: dict[str, float | str] = dataclasses.field(default_factory=dict)
    """What all variants shall have as much of: ``parameters``, ``macs``, ``cache_bytes`` or ``state``, under it the
    number or the variant that has it already; and ``tolerance``, 1% unless said."""
    tune: dict[str, list] = dataclasses.field(default_factory=dict)
    """Values for each of some key paths, tried for every variant alike; the best on the validation part is reported
    on the test part."""
    budget: dict[str, float] = dataclasses.field(default_factory=dict)
    """``seconds`` of training for every cell in place of its steps, outside of every promise of identity."""
    equivalence: float | dict[str, float] = 0.0
    """Margin within which a difference doesn't matter, in the metric's unit, for all tasks or by task."""
    executor: str | dict[str, Any] = "local"
    """Who runs the cells: the name of an executor, or a mapping with its knobs."""
    threads: int = 1
    """Threads of torch in each cell; results depend on them, so they are part of a cell's address."""
    verdicts: bool = True
    """Whether a verdict is wanted; without, a plan that can't give any, such as one seed, is run all the same."""


class Block:
    """Reads a ``compare`` block; mistakes are collected."""

    def __init__(self, block: Node, folders: RecipeFolders) -> None:
        self.block, self.folders, self.problems = block, folders, Problems()
        self.written: dict[str, Node] = {}
        if not isinstance(block.value, dict):
            self.refuse(block, (), "takes a mapping", f"write {COMPARE}: {{KEY: VALUE}}")
            self.problems.raise_any(COMPARE)
            return
        hints = typing.get_type_hints(CompareConfig)
        for key, node in block.value.items():
            if key not in hints:
                near = did_you_mean(key, hints)
                self.refuse(node, (key,), f"is no key of {COMPARE}{near}", f"choose one of {', '.join(hints)}")
            elif node.value is not None and self._fits(node, hints[key], key):
                self.written[key] = node

    def _fits(self, node: Node, hint: Any, key: str) -> bool:
        try:
            fit(node.plain(), hint)
        except Misfit as misfit:
            path = (key, *misfit.path)
            wrong = dict(node.walk((key,))).get(path, node)
            self.refuse(wrong, path, str(misfit), advice(misfit, wrong.text))
            return False
        return True

    def refuse(self, node: Node, path: KeyPath, what: str, fix: str | None = None) -> None:
        """Collect a mistake, at a path below the block."""
        place = dotted((COMPARE, *path))
        self.problems.add(f"{place} {what}", where=f"{node.origin} ({place})", fix=fix)

    def variants(self) -> dict[str, dict[str, Node]]:
        """Values by key path for each variant."""
        if "variants" in self.written and "vary" in self.written:
            self.refuse(self.written["vary"], ("vary",), "and compare.variants exclude each other", "keep one")
        found = self._named() if "variants" in self.written else self._product()
        if len(found) < 2 and not self.problems.found:
            what = f"needs at least 2 variants, this has {len(found)}"
            self.refuse(
                self.block, (), what, "write variants: {NAME: {key.path: value}, ...}, or vary: {key.path: [...]}"
            )
        return found

    def _named(self) -> dict[str, dict[str, Node]]:
        found: dict[str, dict[str, Node]] = {}
        for name, node in items(self.written["variants"]):
            if not name or not name.isprintable():
                self.refuse(node, ("variants", name), "has a name that can't be printed", "give it another")
            found[name] = {key: value for key, value in items(node) if self.is_varied(key, value, "variants", name)}
        return found

    def _product(self) -> dict[str, dict[str, Node]]:
        if "vary" not in self.written:
            return {}
        axes = [_Axis(key, node.value) for key, node in items(self.written["vary"]) if self._is_axis(key, node)]
        if not axes or math.prod(len(axis.nodes) for axis in axes) > MAX_CELLS:
            return self._too_many() if axes else {}
        found: dict[str, dict[str, Node]] = {}
        for choice in itertools.product(*(zip(axis.labels, axis.nodes, strict=True) for axis in axes)):
            name = "+".join(label for label, _ in choice)
            found[name] = {axis.key: node for axis, (_, node) in zip(axes, choice, strict=True)}
        return found

    def _too_many(self) -> dict[str, dict[str, Node]]:
        self.refuse(self.written["vary"], ("vary",), f"makes more than {MAX_CELLS:,} variants", "vary less at once")
        return {}

    def _is_axis(self, key: str, node: Node) -> bool:
        if not self.is_list(key, node, "vary"):
            return False
        assert isinstance(node.value, list)
        labels = _Axis(key, node.value).labels
        if twice := next((label for label in labels if labels.count(label) > 1), None):
            self.refuse(node, ("vary", key), f"has {twice} twice", "remove one of the two")
        return True

    def is_list(self, key: str, node: Node, *path: str) -> bool:
        """Whether a variant may set a key path, to each of at least one value."""
        if self.is_varied(key, node, *path) and not node.value:
            self.refuse(node, (*path, key), "is an empty list", "list at least one value")
        return bool(node.value)

    def is_varied(self, key: str, node: Node, *path: str) -> bool:
        """Whether a variant may set a key path."""
        try:
            first = split_path(key)[0]
        except ValueError as error:
            self.refuse(node, (*path, key), f"is no key of a variant: {error}", "write a key path")
            return False
        if first not in VARIED:
            fixes = {"seed": "use compare.seeds", "base": "write a recipe, and name it under compare.tasks"}
            fix = fixes.get(first, f"begin the key path with one of {', '.join(VARIED)}")
            self.refuse(node, (*path, key), f"can't be set by a variant{did_you_mean(first, VARIED)}", fix)
        return first in VARIED

    def tasks(self) -> dict[str, list[Node]]:
        """Layers of each task's recipe, by the stem of its file."""
        found: dict[str, list[Node]] = {}
        if "tasks" not in self.written:
            return found
        for number, node in enumerate(_entries(self.written["tasks"])):
            path = ("tasks", str(number))
            try:
                file = find_layer(node, self.folders, "recipe")
                layers = read_layers(file, self.folders)
            except UserError as error:
                self.problems.found.append(error)
                continue
            if any(child(layer, COMPARE) for layer in layers):
                self.refuse(node, path, f"{node.value} is a comparison itself", "name a recipe without `compare`")
            if file.stem in found:
                self.refuse(node, path, f"has the name {file.stem}, as another task", "rename one of the two files")
            found[file.stem] = layers
        return found

    def seeds(self, first: Node) -> list[int]:
        """The list of seeds, or as many as are asked for, counted up from the recipe's."""
        node = self.written.get("seeds", Node(3, Origin("default", text=COMPARE)))
        if isinstance(node.value, list):
            seeds = [item.value for item in node.value]
        elif not isinstance(first.value, int) or isinstance(first.value, bool):
            self.problems.add(f"seed is {first.value!r}, no whole number", where=f"{first.origin} (seed)")
            return []
        else:
            assert isinstance(node.value, int)
            seeds = [first.value + number for number in range(min(node.value, MAX_CELLS))]
        whole = [seed for seed in seeds if isinstance(seed, int)]
        if not whole:
            self.refuse(node, ("seeds",), "gives no seed", "give at least 1; an interval needs at least 2")
        elif len(set(whole)) < len(whole):
            self.refuse(node, ("seeds",), "has a seed twice, which would count one run as two", "list each once")
        elif not 0 <= min(whole) <= max(whole) <= LARGEST_SEED:
            self.refuse(node, ("seeds",), f"has a seed outside 0 to {LARGEST_SEED}", "choose smaller ones")
        return whole

    def baseline(self, variants: Mapping[str, object]) -> str:
        """The name of the baseline."""
        node = self.written.get("baseline")
        if node is None:
            return next(iter(variants), "")
        if node.value not in variants and variants:
            near = did_you_mean(str(node.value), variants)
            fix = f"choose one of {', '.join(variants)}"
            self.refuse(node, ("baseline",), f"is {node.value!r}, which is no variant{near}", fix)
        return str(node.value)

    def check_size(self, cells: int) -> None:
        """Refuse a grid that nobody can mean."""
        if cells > MAX_CELLS:
            self.refuse(self.block, (), f"has {cells:,} cells; {MAX_CELLS:,} is the most", "split the comparison")


class _Axis:
    """A key path with its values and what each is called in the names of variants."""

    def __init__(self, key: str, nodes: Any) -> None:
        self.key = key
        self.nodes: list[Node] = nodes
        names = [name_of(node.value) for node in self.nodes]
        self.labels = [
            name if name and names.count(name) == 1 else _label(split_path(key)[-1], node)
            for name, node in zip(names, self.nodes, strict=True)
        ]


def _label(key: str, node: Node) -> str:
    """``rotary(theta=500)`` for a name that other values of the axis have too; ``layers=4`` for what has none."""
    if isinstance(node.value, dict) and (name := name_of(node.value)):
        knobs = [f"{knob}={_text(value)}" for knob, value in node.value.items() if knob != "name"]
        return f"{name}({', '.join(knobs)})" if knobs else name
    return node.value if isinstance(node.value, str) else f"{key}={_text(node)}"


def _text(node: Node) -> str:
    return json.dumps(node.plain(), ensure_ascii=False).replace('"', "")


def items(node: Node) -> Iterator[tuple[str, Node]]:
    """Keys and values of a mapping."""
    assert isinstance(node.value, dict)
    yield from node.value.items()


def _entries(node: Node) -> list[Node]:
    assert isinstance(node.value, list)
    return node.value


def child(node: Node, key: str) -> Node | None:
    """What stands under a key of a mapping."""
    return node.value.get(key) if isinstance(node.value, dict) else None
