"""Loading plugins: their packages are imported, their hooks checked against the specifications, and relayed."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pluggy

from zoo import hookspecs
from zoo.component import Component, did_you_mean, line_at_fault
from zoo.errors import UserError

SPECIFICATIONS: Mapping[str, Callable[..., Any]] = {
    name: value for name, value in vars(hookspecs).items() if hasattr(value, "zoo_spec")
}
"""Hook name → the documented function in ``zoo.hookspecs``."""


class Hooks:
    """The hooks of all plugins that were added."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager("zoo")
        self._manager.add_hookspecs(hookspecs)
        self._plugins: list[tuple[Component, ModuleType]] = []

    @property
    def relay(self) -> pluggy.HookRelay:
        """Calls a hook of every plugin: ``relay.zoo_recipe_paths()`` is a list with one result per plugin."""
        return self._manager.hook

    def add(self, plugin: Component, module: ModuleType) -> None:
        """Register the imported module of a plugin.

        Raises:
            UserError: a hook that is misspelt, not marked, or has other arguments than its specification.
        """
        for name, function in vars(module).items():
            if name.startswith("zoo_") and inspect.isfunction(function):
                _check_hook(name, function, plugin)
        try:
            self._manager.register(module, name=plugin.module)
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:
            known = f"the hooks are {', '.join(map(_signature, SPECIFICATIONS))}"
            raise UserError(f"{plugin.title}: {error}", where=str(plugin.file), fix=known) from error
        self._plugins.append((plugin, module))

    def components(self, plugin: Component) -> list[Component]:
        """What a plugin's hook ``zoo_components`` offers, with the plugin as its provider.

        Raises:
            UserError: the hook fails, or returns anything but components.
        """
        others = [module for other, module in self._plugins if other is not plugin]
        offer = self._manager.subset_hook_caller("zoo_components", others)
        try:
            found = [component for result in offer() for component in result]
        except Exception as error:
            what = f"{plugin.title}: hook zoo_components failed: {type(error).__name__}: {error}"
            raise UserError(what, where=line_at_fault(error, plugin.file)) from error
        wrong = [component for component in found if not isinstance(component, Component)]
        if wrong:
            what = f"{plugin.title}: hook zoo_components returned {wrong[0]!r}, which is no component"
            raise UserError(what, where=str(plugin.file), fix="make each with zoo.component.component(...)")
        return [dataclasses.replace(each, provider=plugin.provider, version=plugin.version) for each in found]


def _check_hook(name: str, function: Callable[..., Any], plugin: Component) -> None:
    code = inspect.unwrap(function).__code__
    where = f"{code.co_filename}:{code.co_firstlineno}"
    if name not in SPECIFICATIONS:
        raise UserError(
            f"{plugin.title}: {name} is no hook of the zoo{did_you_mean(name, SPECIFICATIONS)}",
            where=where,
            fix=f"rename it; the hooks are {', '.join(map(_signature, SPECIFICATIONS))}",
        )
    if not hasattr(function, "zoo_impl"):
        raise UserError(
            f"{plugin.title}: {_signature(name)} isn't marked as a hook, so it would never be called",
            where=where,
            fix="put @hookimpl above it (from zoo.hookspecs import hookimpl)",
        )
    wrong = _wrong_arguments(function, SPECIFICATIONS[name])
    if wrong:
        raise UserError(
            f"{plugin.title}: hook {name} {wrong}", where=where, fix=f"write it as {_signature(name)}, or with fewer"
        )


def _wrong_arguments(function: Callable[..., Any], specification: Callable[..., Any]) -> str | None:
    """What is wrong with a hook's arguments, as the end of a sentence."""
    known = inspect.signature(specification).parameters
    for parameter in inspect.signature(function).parameters.values():
        required = parameter.default is parameter.empty
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if required and (parameter.name not in known or parameter.kind is parameter.KEYWORD_ONLY):
            return f"asks for {parameter.name!r}, which it isn't given"
        if parameter.name in known and not required:
            return f"has a default for {parameter.name!r}, so it would never be given its value"
    return None


def _signature(name: str) -> str:
    return f"{name}({', '.join(inspect.signature(SPECIFICATIONS[name]).parameters)})"
