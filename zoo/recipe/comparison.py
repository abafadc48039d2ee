"""A comparison: a recipe with a ``compare`` block, which says what is varied, on which tasks, with which seeds.

Every cell of it is a recipe of its own. Its layers, of which the later one wins: the bases of the comparison, the
recipe of the task, the other keys of the comparison, the variant, the overrides of the command line, the seed. A base
that compares something itself is part of the comparison, so its keys lie over the task's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import UserError
from zoo.recipe.compare_block import Block, child
from zoo.recipe.compare_terms import Terms, read_terms
from zoo.recipe.compose import SEED, compose
from zoo.recipe.find import RecipeFolders, find_recipe, read_layers
from zoo.recipe.merge import merge, read_override
from zoo.recipe.node import KeyPath, Node, Origin, absolute, from_python, split_path
from zoo.recipe.recipe import Recipe
from zoo.recipe.shape import COMPARE, Shapes
from zoo.registry import Registry


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Comparison(Terms):
    """What ``load_comparison`` gives: the grid, and the terms on which it is compared.

    Attributes:
        name: stem of the file.
        file: where it was read.
        registry: where components are found.
        variants: values by key path for each variant, in the order in which they were written.
        tasks: layers of the recipe of each task, likewise.
        seeds: of every variant on every task.
        baseline: name of the variant that the others are held against.
        below: layers under a task's: bases that compare nothing.
        above: layers over a task's: the comparison's own keys.
        overrides: layers of the command line.
        arguments: what they were written as.
        plugins: files and folders beside those that recipes name.
    """

    name: str
    file: Path
    registry: Registry
    variants: Mapping[str, Mapping[str, Node]]
    tasks: Mapping[str, Sequence[Node]]
    seeds: Sequence[int]
    baseline: str
    below: Sequence[Node]
    above: Sequence[Node]
    overrides: Sequence[Node]
    arguments: Sequence[str]
    plugins: Sequence[Path]

    def recipe(self, variant: str, task: str, seed: int, settled: Mapping[str, Any] | None = None) -> Recipe:
        """The recipe of one cell.

        Args:
            variant, task, seed: its place.
            settled: values by key path over all others: what was matched, is being tuned, or was calibrated.

        Raises:
            UserError: as ``load_recipe``.
        """
        changes = [_layer(split_path(key), node) for key, node in self.variants[variant].items()]
        origin = Origin("default", text=f"{self.name}: settled by the comparison")
        over = [_layer(split_path(key), from_python(value, origin)) for key, value in (settled or {}).items()]
        number = Node({"seed": Node(seed, Origin("default", text=f"{self.name}: compare.seeds"))}, Origin("recipe"))
        layers = [*self.below, *self.tasks[task], *self.above, *changes, *self.overrides, *over, number]
        made = compose(layers, (), name=task, file=self.file, registry=self.registry, plugins=self.plugins)
        return Recipe(**vars(made))

    def plain(self) -> dict[str, Any]:
        """What is compared, as plain values, for the folder of the results."""
        variants = {name: {key: node.plain() for key, node in values.items()} for name, values in self.variants.items()}
        return {
            "recipe": str(self.file),
            "variants": variants,
            "tasks": [*self.tasks],
            "seeds": [*self.seeds],
            "baseline": self.baseline,
            "match": self.match and dataclasses.asdict(self.match),
            "tune": {key: [node.plain() for node in nodes] for key, nodes in self.tune.items()},
            "budget": {} if self.seconds is None else {"seconds": self.seconds},
            "equivalence": dict(self.equivalence),
            "executor": dict(self.executor),
            "threads": self.threads,
            "overrides": [*self.arguments],
            "plugins": [str(path) for path in self.plugins],
        }


def load_comparison(
    source: str | Path,
    overrides: Sequence[str] = (),
    *,
    registry: Registry | None = None,
    plugins: Sequence[str | Path] = (),
) -> Comparison:
    """Read and check the ``compare`` block of a recipe; the recipes of its cells are checked as they are made.

    Args:
        source: a YAML file, or the name of a recipe.
        overrides: ``key.path=value`` for every cell, or ``compare.key=value``.
        registry: where components are found; by default everything that is installed, and ``ZOO_PLUGINS``.
        plugins: component files and folders, as ``--plugin`` gives them.

    Raises:
        UserError: the recipe isn't there or compares nothing, or one message for all mistakes in its block.
    """
    paths = [absolute(str(plugin), Path.cwd()) for plugin in plugins]
    registry = registry or Registry.discover(plugins=paths)
    folders = RecipeFolders(registry)
    file = find_recipe(source, folders)
    files, said = read_layers(file, folders), [read_override(text, n) for n, text in enumerate(overrides, start=1)]
    block = Block(_block([*files, *said], file, registry), folders)
    first = next((place for place, layer in enumerate(files) if child(layer, COMPARE)), len(files) - 1)
    below, above, over = (list(map(_without_block, part)) for part in (files[:first], files[first:], said))
    variants, tasks = block.variants(), block.tasks() or {file.stem: []}
    seeds = block.seeds(_written_seed([*below, *above, *over]))
    baseline = block.baseline(variants)
    terms = read_terms(block, variants, tasks, registry)
    block.check_size(len(variants) * len(tasks) * len(seeds))
    block.problems.raise_any(f"comparison {file.stem}")
    return Comparison(
        name=file.stem,
        file=file,
        registry=registry,
        variants=variants,
        tasks=tasks,
        seeds=seeds,
        baseline=baseline,
        **vars(terms),
        below=below,
        above=above,
        overrides=over,
        arguments=[*overrides],
        plugins=paths,
    )


def _block(layers: Sequence[Node], file: Path, registry: Registry) -> Node:
    """The ``compare`` blocks of all layers as one."""
    written = [Node({COMPARE: block}, layer.origin) for layer in layers if (block := child(layer, COMPARE))]
    block = child(merge(written, Shapes(registry)), COMPARE)
    if block is None or block.value is None:
        fix = f"write {COMPARE}: {{variants: {{NAME: {{key.path: value}}, ...}}}}"
        raise UserError(f"recipe {file.stem} has no `{COMPARE}` block, so there is nothing to compare", fix=fix)
    return block


def _without_block(layer: Node) -> Node:
    assert isinstance(layer.value, dict)
    return Node({key: value for key, value in layer.value.items() if key != COMPARE}, layer.origin)


def _written_seed(layers: Sequence[Node]) -> Node:
    written = [node for layer in layers if (node := child(layer, "seed"))]
    return written[-1] if written else Node(SEED, Origin("default", text="every recipe"))


def _layer(path: KeyPath, node: Node) -> Node:
    """The layer of a recipe that a key path and its value stand for."""
    for key in reversed(path):
        node = Node({key: node}, node.origin)
    return node
