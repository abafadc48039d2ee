"""A value of a recipe together with the place that says it."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from zoo.errors import UserError

KeyPath = tuple[str, ...]
"""Place of a value in a recipe: its keys, with the index of a list's item as text."""

MAX_DEPTH = 100
MAX_NODES = 100_000

Scalar = str | int | float | bool | None


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """Where a value of a recipe comes from.

    Attributes:
        kind: ``default`` of a component, a ``base`` file, the ``recipe`` itself, or an ``override``.
        file: the file that says it; ``None`` for defaults, overrides and recipes made in Python.
        line: line in the file, from 1; for an override its number among the overrides.
        text: the scalar as the file has it, the whole override, or what the default belongs to.
    """

    kind: Literal["default", "base", "recipe", "override"]
    file: Path | None = None
    line: int | None = None
    text: str = ""

    def __str__(self) -> str:
        if self.kind == "default":
            return f"default of {self.text}"
        if self.kind == "override":
            return f"override {self.line}: {self.text}"
        return f"{shown(self.file)}:{self.line}" if self.file else "recipe made in Python"

    @property
    def folder(self) -> Path:
        """Folder that a relative path is taken from: the file's own, or the working directory."""
        return self.file.resolve().parent if self.file else Path.cwd()


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A mapping, list or scalar with its origin; the ``text`` of a scalar is how it is written."""

    value: dict[str, Node] | list[Node] | Scalar
    origin: Origin
    text: str = ""

    def plain(self) -> Any:
        """The value alone: nested dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def walk(self, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Node]]:
        """This node and all below it, parents first."""
        yield path, self
        if isinstance(self.value, dict):
            for key, child in self.value.items():
                yield from child.walk((*path, key))
        elif isinstance(self.value, list):
            for index, child in enumerate(self.value):
                yield from child.walk((*path, str(index)))


def from_python(value: object, origin: Origin, depth: int = 0) -> Node:
    """A node of plain Python values; tuples become lists and paths become text.

    Raises:
        UserError: a value that a recipe file couldn't hold.
    """
    if depth > MAX_DEPTH:
        raise UserError(f"the recipe is nested deeper than {MAX_DEPTH}", where=str(origin))
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UserError(f"the key {key!r} isn't text", where=str(origin))
        return Node({key: from_python(child, origin, depth + 1) for key, child in value.items()}, origin)
    if isinstance(value, Path):
        value = str(value)
    if value is None or isinstance(value, str | int | float):
        return Node(value, origin, str(value))
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return Node([from_python(child, origin, depth + 1) for child in value], origin)
    raise UserError(f"a recipe can't hold {value!r}, a {type(value).__name__}", where=str(origin))


def dotted(path: KeyPath) -> str:
    """Text of a key path: ``architecture.attention.0.bias``; a key that has a dot stands in brackets."""
    text = "".join(f"[{key}]" if re.search(r"[.\[\]]", key) else f".{key}" for key in path)
    return text.removeprefix(".")


def split_path(text: str) -> KeyPath:
    """Keys of a key path, the inverse of ``dotted``.

    Raises:
        ValueError: a text that is no key path.
    """
    if not re.fullmatch(r"(\[[^\]]+\]|[^.\[\]]+)(\[[^\]]+\]|\.[^.\[\]]+)*", text):
        raise ValueError(f"{text!r} isn't a key path like architecture.attention.name")
    return tuple(inside or bare for inside, bare in re.findall(r"\[([^\]]+)\]|([^.\[\]]+)", text))


def shown(file: Path) -> str:
    """A file as messages show it: relative to the working directory where it lies below it, else absolute."""
    absolute = file.absolute()
    here = Path.cwd()
    is_below = absolute.is_relative_to(here) and here != Path(here.anchor)
    return str(absolute.relative_to(here) if is_below else absolute)


def absolute(text: str, folder: Path) -> Path:
    """A path as a file in ``folder`` means it, ``~`` expanded; symbolic links stay unless ``..`` follows one."""
    try:
        path = folder / Path(text).expanduser()
        return path.resolve() if ".." in path.parts else Path(os.path.normpath(path))
    except (OSError, RuntimeError, ValueError):  # ~ of somebody unknown, a circle of links, a NUL character
        return folder / text
