"""Interpolations ``${architecture.dim}`` and ``${oc.env:NAME}``: resolved in memory, kept as written on disk."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError, OmegaConfBaseException

from zoo.errors import UserError
from zoo.recipe.node import KeyPath, Node, dotted
from zoo.recipe.problems import Problems


def is_interpolated(value: object) -> bool:
    """Whether a value is a text that OmegaConf would look into."""
    return isinstance(value, str) and "${" in value


def check_syntax(merged: Node, problems: Problems) -> None:
    """Note each text with a ``${`` that OmegaConf can't parse."""
    for path, node in merged.walk():
        if is_interpolated(node.value):
            try:
                OmegaConf.create([node.value])
            except OmegaConfBaseException as error:
                problems.add(
                    f"{dotted(path)} isn't a valid interpolation: {_reason(error)}",
                    where=str(node.origin),
                    fix=r"write ${key.path} or ${oc.env:NAME}; a text that holds ${ is written \${",
                )


class Interpolation:
    """Resolves the interpolations of a tree of plain values."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        self._tree = dict(tree)

    @functools.cached_property
    def _config(self) -> DictConfig:
        return OmegaConf.create(self._tree)  # milliseconds that a recipe without interpolations doesn't pay

    def value(self, path: KeyPath) -> Any:
        """Plain value at a place, everything in it resolved.

        Raises:
            UserError: it leads to nothing, to itself or to a missing value.
        """
        try:
            found: Any = self._config
            for key in path:
                found = found[int(key) if isinstance(found, ListConfig) else key]
            if isinstance(found, DictConfig | ListConfig):
                return OmegaConf.to_container(found, resolve=True, throw_on_missing=True)
            return found
        except InterpolationToMissingValueError as error:
            raise UserError(f"leads to a value that isn't set: {_reason(error)}") from error
        except (OmegaConfBaseException, RecursionError) as error:
            fix = "set the environment variable" if "Environment variable" in str(error) else None
            raise UserError(_reason(error), fix=fix or "correct the key path between ${ and }") from error


def _reason(error: BaseException) -> str:
    first = str(error).split("\n", 1)[0]
    return re.sub(r"^\w+ (raised )?while resolving interpolation: ", "", first).strip('"') or type(error).__name__


def literal(value: Any) -> Any:
    """A value whose texts OmegaConf takes as they are, ``${`` included."""
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", lambda match: match[1] * 2 + r"\${", value)
    if isinstance(value, dict):
        return {key: literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [literal(item) for item in value]
    return value


def as_written(tree: dict[str, Any], texts: Mapping[KeyPath, str]) -> dict[str, Any]:
    """The tree with some places as they were written, the innermost of nested ones left out."""
    result = _copied(tree)
    for path, text in sorted(texts.items(), key=lambda item: -len(item[0])):
        parent = result
        for key in path[:-1]:
            parent = parent[int(key) if isinstance(parent, list) else key]
        parent[int(path[-1]) if isinstance(parent, list) else path[-1]] = text
    return result


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def unsafe_to_show(tree: dict[str, Any], texts: Mapping[KeyPath, str]) -> dict[KeyPath, str]:
    """Those texts whose value may hold something of the environment, directly or by way of others.

    A text with a colon calls a resolver, such as ``oc.env``. Each of them is swapped for a marker; a text whose
    value changes with that depends on one.
    """
    unsafe = {path: text for path, text in texts.items() if ":" in text}
    marked = {**texts, **dict.fromkeys(unsafe, "hidden by the zoo")}
    interpolation = Interpolation(as_written(tree, marked))
    for path, text in texts.items():
        try:
            if path not in unsafe and interpolation.value(path) != at(tree, path):
                unsafe[path] = text
        except UserError:
            unsafe[path] = text
    return unsafe


def at(tree: Any, path: KeyPath) -> Any:
    """The value at a place of a tree.

    Raises:
        KeyError: there is no such place.
    """
    for key in path:
        if isinstance(tree, dict):
            tree = tree[key]
        elif isinstance(tree, list) and key.isdigit() and int(key) < len(tree):
            tree = tree[int(key)]
        else:
            raise KeyError(key)
    return tree
