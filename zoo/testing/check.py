"""``zoo check``: find what a target names, and run the suite of its kind over it."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.component import KINDS, Component, contract, did_you_mean
from zoo.errors import UserError
from zoo.recipe import load_recipe
from zoo.registry import Registry
from zoo.scan import scan_file
from zoo.testing.report import Finding, Report
from zoo.testing.suite import Check, Suite, run_check

Target = str | Path | type[Any]


def check(
    target: Target,
    *,
    full: bool = False,
    plugins: Sequence[Path | str] = (),
    overrides: Sequence[str] = (),
    seed: int = 0,
) -> Report:
    """Examine a component or the model of a recipe.

    Args:
        target: a plugin file (``my_attention.py``), a component (``multi_head`` or ``attention/multi_head``), a
            class, or a recipe (a ``.yaml`` file, or the name of one).
        full: also what takes longer: inductor, export, other processes, many more masks.
        plugins: more plugin files and folders, in which the target or a recipe's parts may be.
        overrides: ``key.path=value``, changes to a recipe.
        seed: everything random in the checks follows from it.

    Raises:
        UserError: the target names nothing, or several things, or is broken; overrides for what is no recipe.
    """
    examination = examine(target, plugins=plugins, overrides=overrides, seed=seed)
    return Report(examination.label, examination.suite.run(examination.subject, full))


@dataclasses.dataclass(frozen=True)
class Examination:
    """A target that was found, and what to run over it."""

    label: str
    suite: Suite[Any]
    subject: Any

    def checks(self, full: bool = False) -> list[Check]:
        """The checks, in order."""
        return self.suite.chosen(full)

    def run(self, check: Check) -> Finding:
        """The outcome of one check."""
        return run_check(check, self.subject)


def examine(
    target: Target, *, plugins: Sequence[Path | str] = (), overrides: Sequence[str] = (), seed: int = 0
) -> Examination:
    """Find what a target names; arguments and errors as for ``check``."""
    if isinstance(target, type):
        kind = _kind_of(target)
        _refuse_overrides(target.__qualname__, overrides)
        return _of_class(target, kind, f"{kind}/{target.__qualname__}", plugins, seed)
    text = str(target)
    if text.endswith(".py"):
        record = _read(text)
        _refuse_overrides(text, overrides)
        return _of_class(record.load(), record.kind, f"{record.key} in {text}", [*plugins, text], seed)
    registry = Registry.discover(plugins)
    registry.load_plugins()
    component = None if text.endswith((".yaml", ".yml")) else _find(registry, text)
    if component is not None:
        _refuse_overrides(component.key, overrides)
        return _of_class(component.load(), component.kind, component.key, plugins, seed)
    if text in KINDS:
        names = [f"{text}/{record.name}" for record in registry.components(text)]
        raise UserError(f"{text} is a kind of component, not one of them", fix=f"choose one of {', '.join(names)}")
    return _of_recipe(text, registry, overrides, plugins, seed)


def _read(text: str) -> Component:
    """The record of a component file.

    Raises:
        UserError: no such file, or one that holds no component; says why, and in which line.
    """
    path = Path(text).absolute()
    if not path.is_file():
        near = did_you_mean(path.name, [file.name for file in path.parent.glob("*.py")])
        fix = "give a component file, or a component or recipe by name"
        raise UserError(f"there is no file {text}{near}", where=str(path.parent), fix=fix)
    record = scan_file(path)
    if record.error:
        line, _, reason = record.error.removeprefix(str(path)).partition(": ")
        raise UserError(f"{text} can't be checked: {reason}", where=f"{path}{line}", fix="repair the file")
    return record


def _refuse_overrides(what: str, overrides: Sequence[str]) -> None:
    if overrides:
        raise UserError(
            f"{what} is a component, and KEY=VALUE changes a recipe",
            where=f"override 1: {overrides[0]}",
            fix="check a recipe that uses the component: zoo check RECIPE KEY=VALUE",
        )


def _of_class(component: type[Any], kind: str, label: str, plugins: Sequence[Path | str], seed: int) -> Examination:
    suite = suite_of(kind)
    return Examination(label, suite, suite.subject(component, seed=seed, plugins=plugins))


def _of_recipe(
    text: str, registry: Registry, overrides: Sequence[str], plugins: Sequence[Path | str], seed: int
) -> Examination:
    try:
        recipe = load_recipe(text, overrides, registry=registry, plugins=plugins)
    except UserError as error:
        names = [record.name for record in registry.components() if record.kind in KINDS]
        near = did_you_mean(text, names)
        if not near or Path(text).exists():
            raise
        raise UserError(f"{text!r} names no component and no recipe{near}", fix=error.fix) from error
    suite = suite_of("recipe")
    return Examination(f"recipe {recipe.name}", suite, suite.subject(recipe, seed=seed))


def suite_of(kind: str) -> Suite[Any]:
    """All checks of a kind of component, or of ``recipe``."""
    return importlib.import_module(f"zoo.testing.{kind}").SUITE


def _kind_of(component: type[Any]) -> str:
    kinds = [kind for kind in KINDS if issubclass(component, contract(kind))]
    if not kinds:
        raise UserError(f"{component.__qualname__} implements no contract", fix="inherit from one in zoo.contracts")
    return kinds[0]


def _find(registry: Registry, text: str) -> Component | None:
    """The component that a text names, or ``None`` where no component has the name.

    Raises:
        UserError: components of several kinds have it.
    """
    kind, slash, name = text.partition("/")
    if slash and kind in KINDS:
        return registry.find(kind, name)
    short = text.rpartition(":")[2]
    kinds = sorted({record.kind for record in registry.components() if record.name == short} & set(KINDS))
    if len(kinds) > 1:
        ways = " or ".join(f"{kind}/{text}" for kind in kinds)
        raise UserError(f"{text!r} is the name of {' and '.join(kinds)}", fix=f"say which: {ways}")
    return registry.find(kinds[0], text) if kinds else None
