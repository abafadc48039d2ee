"""Layers in, a checked recipe out; every mistake is found here, before any data is touched."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zoo.component import did_you_mean
from zoo.errors import UserError
from zoo.outside import listed
from zoo.recipe.interpolation import check_syntax, is_interpolated
from zoo.recipe.merge import merge, read_override
from zoo.recipe.node import KeyPath, Node, Origin, absolute, from_python, shown
from zoo.recipe.problems import Problems
from zoo.recipe.sections import Draft, Section
from zoo.recipe.shape import COMPARE, KEYS, OPTIONAL, SECTIONS, Shapes
from zoo.recipe.trainer import check_trainer, draft_trainer
from zoo.recipe.training import TrainingConfig
from zoo.recipe.values import Values

if TYPE_CHECKING:
    from zoo.registry import Registry

SEED = 1337
LARGEST_SEED = 2**32 - 1  # numpy takes no larger one
Logger = Literal["csv", "tensorboard"]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Composition:
    """A composed recipe as data.

    Attributes:
        name: stem of the file, or the folder's name for a run.
        file: where it was read; ``None`` for one made in Python.
        registry: where its components were found.
        merged: the layers as one, before defaults.
        tree: plain values, interpolations resolved, every default filled in.
        texts: what is written where an interpolation stood, by place.
        nodes: the node, with its origin, of every place.
        sections: what a Config describes, by place, parents first.
        configs: the Config of every section, by place.
    """

    name: str
    file: Path | None
    registry: Registry
    merged: Node
    tree: dict[str, Any]
    texts: Mapping[KeyPath, str]
    nodes: Mapping[KeyPath, Node]
    sections: Mapping[KeyPath, Section]
    configs: Mapping[KeyPath, Any]


def compose(
    layers: Sequence[Node],
    overrides: Sequence[str],
    *,
    name: str,
    file: Path | None,
    registry: Registry,
    plugins: Sequence[Path] = (),
    fragment: bool = False,
) -> Composition:
    """Merge layers and overrides, find the components, fill in defaults, resolve, and check every value.

    Args:
        layers: mappings without ``base``, the later one wins.
        overrides: ``key.path=value``, applied last, left to right.
        name, file: of the recipe.
        registry: where components are found; extended by the plugins that the recipe names.
        plugins: absolute paths of files and folders that are used beside those.
        fragment: whether sections without a default may be missing, as in a preset.

    Raises:
        UserError: one message for all mistakes that were found.
    """
    layers = [*layers, *(read_override(text, number) for number, text in enumerate(overrides, start=1))]
    paths, place = _plugin_paths(layers)
    registry = _extended(registry, [*plugins, *paths], place)
    merged = merge(layers, Shapes(registry))
    _refuse_comparison(merged, shown(file) if file else name)
    problems = Problems()
    check_syntax(merged, problems)
    problems.raise_any(f"recipe {name}")
    draft = Draft(registry, merged, problems)
    values = Values(draft, _draft_tree(draft, merged, is_fragment=fragment))
    _check_seed(draft, values.tree["seed"])
    check_trainer(draft, values.tree["trainer"])
    problems.raise_any(f"recipe {name}")
    sections = {section.path: section for section in draft.sections}
    used = _used_paths(registry, sections.values())
    values.tree["plugins"] = list(dict.fromkeys(map(str, [*plugins, *paths, *used])))
    return Composition(
        name=name,
        file=file,
        registry=registry,
        merged=merged,
        tree=values.tree,
        texts=values.texts,
        nodes=draft.nodes,
        sections=sections,
        configs=values.configs,
    )


def _refuse_comparison(merged: Node, source: str) -> None:
    assert isinstance(merged.value, dict)
    if block := merged.value.get(COMPARE):
        raise UserError(
            f"the recipe is a comparison, of several runs: it has a `{COMPARE}` block",
            where=f"{block.origin} ({COMPARE})",
            fix=f"run all of them: zoo compare {source}; or name a recipe without `{COMPARE}`",
        )


def _draft_tree(draft: Draft, merged: Node, *, is_fragment: bool) -> dict[str, Any]:
    written: Any = merged.value
    _refuse_unknown(draft, written)
    own = Origin("default", text="every recipe")
    tree: dict[str, Any] = {}
    tree["plugins"] = draft.keep(written.get("plugins", from_python([], own)), ("plugins",))
    tree["seed"] = draft.keep(written.get("seed", Node(SEED, own)), ("seed",))
    for key, slot in SECTIONS.items():
        node = written.get(key)
        if key in OPTIONAL and (node is None or node.value is None):
            continue
        if node is None and not slot.default:
            if not is_fragment:
                draft.problems.add(f"the recipe has no {key}", fix=f"write `{key}: NAME`, or a base that does")
        elif is_fragment and not slot.default and _is_nameless(node):
            draft.keep(node, (key,))  # knobs for the component that a whole recipe will name
        else:
            tree[key] = draft.slot(slot, node or Node(slot.default, own), (key,))
    tree["training"] = draft.section(Section(("training",), TrainingConfig), {}, _mapping(draft, written, "training"))
    tree["trainer"] = draft_trainer(draft, _mapping(draft, written, "trainer"))
    tree["logger"] = draft.keep(written.get("logger", from_python(["csv"], own)), ("logger",))
    draft.hints |= {("seed",): int, ("logger",): list[Logger]}
    return tree


def _mapping(draft: Draft, written: Mapping[str, Node], key: str) -> dict[str, Node]:
    """What is written under a top-level key that takes a mapping."""
    node = written.get(key, Node({}, Origin("default", text="every recipe")))
    draft.nodes[key,] = node
    if isinstance(node.value, dict):
        return node.value
    draft.problems.add(f"{key} takes a mapping", where=draft.where((key,)), fix=f"write {key}: {{KEY: VALUE}}")
    return {}


def _refuse_unknown(draft: Draft, written: Mapping[str, Node]) -> None:
    for key, node in written.items():
        if key not in KEYS:
            draft.nodes[key,] = node
            draft.problems.add(
                f"{key} is no key of a recipe{did_you_mean(key, KEYS)}",
                where=draft.where((key,)),
                fix=f"choose one of {', '.join(KEYS)}",
            )


def _is_nameless(node: Node | None) -> bool:
    return node is not None and isinstance(node.value, dict) and "name" not in node.value


def _check_seed(draft: Draft, seed: Any) -> None:
    if type(seed) is int and not 0 <= seed <= LARGEST_SEED:
        draft.problems.add(f"seed is {seed}; it must be from 0 to {LARGEST_SEED}", where=draft.where(("seed",)))


def _plugin_paths(layers: Sequence[Node]) -> tuple[list[Path], str]:
    """Absolute paths under ``plugins`` in the last layer that has it, and the place that says it."""
    written = [layer.value.get("plugins") for layer in layers if isinstance(layer.value, dict)]
    said = [node for node in written if node and (node.value is not None or node.origin.kind == "override")]
    if not said:
        return [], ""
    where = f"{said[-1].origin} (plugins)"
    items = said[-1].value
    if not isinstance(items, list):
        raise UserError("plugins takes a list of files and folders", where=where, fix="write plugins: [./my_part.py]")
    for item in items:
        if not isinstance(item.value, str) or not item.value or is_interpolated(item.value):
            raise UserError("plugins takes paths, each a text without ${", where=f"{item.origin} (plugins)")
    return [absolute(str(item.value), item.origin.folder) for item in items], where


def _extended(registry: Registry, paths: Sequence[Path], where: str) -> Registry:
    """The registry, or one that knows some more files and folders."""
    known = listed(registry.environment())
    if all(path in known for path in paths):
        return registry
    try:
        return registry.discover(plugins=[*known, *paths])
    except UserError as error:
        raise UserError(error.what, where=where or error.where, fix=error.fix) from error


def _used_paths(registry: Registry, sections: Any) -> list[Path]:
    """Paths that only ``ZOO_PLUGINS`` names and that a component of the recipe comes from."""
    files = [section.component.file for section in sections if section.component and section.component.file]
    return [path for path in listed(registry.environment()) if any(file.is_relative_to(path) for file in files)]
