"""Published results as data: ``verify/NAME.yaml`` beside the recipes, each with its source and its tolerance."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from zoo.component import did_you_mean
from zoo.errors import UserError
from zoo.recipe import Recipe, load_recipe
from zoo.recipe.find import RecipeFolders, find_layer
from zoo.recipe.node import KeyPath, Node, dotted
from zoo.recipe.problems import Problems
from zoo.recipe.source import read_file
from zoo.recipe.typed import Misfit, advice, fit
from zoo.registry import Registry

FOLDER = "verify"
"""Folder of entries, within a folder of recipes."""

Classifier = Literal["logistic_regression", "mlp"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One figure of an entry: what is trained, what is measured, and between which bounds it must lie."""

    recipe: str
    """A recipe by name, or by its path from the entry's file."""
    overrides: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Changes to it, by key path."""
    classifier: Classifier | None = None
    """Fit this classifier of scikit-learn to the recipe's data, in place of training the recipe's model."""
    knobs: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Arguments of the classifier."""
    measured_on: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Further changes for measuring alone, such as longer sequences than the model was trained on."""
    split: Literal["validation", "test"] = "test"
    """Part that is measured."""
    metric: str = "accuracy"
    """Metric of the recipe's task."""
    published: float | str | None = None
    """What the source reports."""
    at_least: float | None = None
    """Smallest value that passes."""
    at_most: float | None = None
    """Largest value that passes."""
    why: str
    """Why these bounds."""
    seconds: float
    """Time on two cores; checks that share a training share it, and only the first one says it."""
    file: Path
    """Of the recipe."""

    def load(self, registry: Registry) -> Recipe:
        """The recipe with its changes.

        Raises:
            UserError: it doesn't take them.
        """
        return load_recipe(self.file, assignments(self.overrides), registry=registry)

    def passes(self, value: float) -> bool:
        """Whether a measured value lies between the bounds; one that isn't a number never does."""
        low, high = self.at_least, self.at_most
        return value == value and (low is None or value >= low) and (high is None or value <= high)

    @property
    def bounds(self) -> str:
        """The bounds in words: ``>= 0.99``, ``0.29 to 0.35``."""
        if self.at_least is None:
            return f"<= {self.at_most:g}"
        return f">= {self.at_least:g}" if self.at_most is None else f"{self.at_least:g} to {self.at_most:g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A published result."""

    name: str
    """Stem of its file."""
    claim: str
    """The result in one sentence."""
    source: str
    """Authors, year, title, and where in it."""
    checks: dict[str, Check]
    """Figures by name."""

    @property
    def seconds(self) -> float:
        """Time of all checks on two cores."""
        return sum(check.seconds for check in self.checks.values())


def assignments(values: dict[str, Any]) -> list[str]:
    """``key.path=value`` for each value, as overrides are written."""
    return [f"{key}={json.dumps(value)}" for key, value in values.items()]


def find_entries(names: Sequence[str], registry: Registry) -> list[Entry]:
    """Entries by name, or all of them.

    Raises:
        UserError: no such entry, two of one name, or mistakes in one.
    """
    folders = RecipeFolders(registry)
    files: dict[str, Path] = {}
    for file in sorted(file for folder in folders.folders for file in (folder / FOLDER).glob("*.yaml")):
        if file.stem in files:
            raise UserError(f"{file.stem!r} names two entries: {files[file.stem]} and {file}", fix="rename one of them")
        files[file.stem] = file
    for name in names:
        if name not in files:
            raise UserError(
                f"there is no published result {name!r}{did_you_mean(name, files)}",
                fix=f"choose one of {', '.join(files) or '(none is installed)'}; zoo verify --list describes them",
            )
    chosen = [file for name, file in files.items() if not names or name in names]
    return [_Reader(file, folders).entry() for file in chosen]


class _Reader:
    """Reads a file; mistakes are collected."""

    def __init__(self, file: Path, folders: RecipeFolders) -> None:
        self.file, self.folders, self.problems = file, folders, Problems()

    def entry(self) -> Entry:
        values = self._typed(read_file(self.file, "recipe"), Entry, (), taken={"name"})
        checks = values.get("checks", {})
        if isinstance(checks, dict):
            values["checks"] = {name: self._check(node, ("checks", name)) for name, node in checks.items()}
        if not values.get("checks"):
            self.problems.add("the entry has no checks", where=str(self.file), fix="write checks: {NAME: {...}}")
        self.problems.raise_any(f"entry {self.file.stem}")
        return Entry(name=self.file.stem, **values)

    def _check(self, node: Node, path: KeyPath) -> Check | None:
        if not isinstance(node.value, dict):
            self._refuse(node, path, "takes a mapping")
            return None
        values = self._typed(node, Check, path, taken={"file"})
        if values.get("at_least") is None and values.get("at_most") is None:
            self._refuse(node, path, "has no bound", "write at_least, at_most or both")
        if self.problems.found:
            return None
        try:
            return Check(**values, file=self._recipe(node.value["recipe"]))
        except UserError as error:
            self.problems.found.append(error)
            return None

    def _recipe(self, node: Node) -> Path:
        """By name first: an entry may have the name of its recipe."""
        return self.folders.find(str(node.value), presets=False) or find_layer(node, self.folders, "recipe")

    def _typed(self, node: Node, made: type, path: KeyPath, *, taken: set[str]) -> dict[str, Any]:
        """Plain values of a mapping that fit the fields of a class; ``checks`` stay nodes."""
        assert isinstance(node.value, dict)
        hints = {name: hint for name, hint in typing.get_type_hints(made).items() if name not in taken}
        values: dict[str, Any] = {}
        for key, child in node.value.items():
            if key not in hints:
                self._refuse(child, (*path, key), f"is no key here{did_you_mean(key, hints)}", _choose(hints))
            elif key == "checks" and isinstance(child.value, dict):
                values[key] = child.value
            else:
                values |= self._fitted(child, hints[key], (*path, key))
        for field in dataclasses.fields(made):
            required = field.default is field.default_factory is dataclasses.MISSING
            if required and field.name in hints and field.name not in node.value:
                self._refuse(node, (*path, field.name), "is missing")
        return values

    def _fitted(self, node: Node, hint: Any, path: KeyPath) -> dict[str, Any]:
        try:
            return {path[-1]: fit(node.plain(), hint)}
        except Misfit as misfit:
            self._refuse(node, (*path, *misfit.path), str(misfit), advice(misfit, node.text))
            return {}

    def _refuse(self, node: Node, path: KeyPath, what: str, fix: str | None = None) -> None:
        place = dotted(path)
        self.problems.add(f"{place} {what}", where=f"{node.origin} ({place})", fix=fix)


def _choose(names: Any) -> str:
    return f"choose one of {', '.join(names)}"
