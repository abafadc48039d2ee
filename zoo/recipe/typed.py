"""Strict types: which plain values of a recipe fit an annotation, and the words to say that one doesn't.

OmegaConf converts generously (8 → "8", "no" → False, 2 → True). In a recipe these are mistakes, so values are
held against the annotation here, before OmegaConf makes typed configs of them.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from zoo.component import did_you_mean
from zoo.recipe.node import KeyPath
from zoo.recipe.source import scalar

_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
    list: "a list",
    tuple: "a list",
    dict: "a mapping",
}


class Misfit(Exception):
    """A value that doesn't fit: the place below the value that was asked about, what it holds, what it should."""

    def __init__(self, value: Any, hint: Any, path: KeyPath = ()) -> None:
        self.value, self.hint, self.path = value, hint, path
        super().__init__(f"expects {described(hint)}, got {told(value)}")


def members(hint: Any) -> Iterator[Any]:
    """The alternatives of an annotation: ``int | None`` → ``int``, ``NoneType``."""
    if get_origin(hint) in (Union, types.UnionType):
        for member in get_args(hint):
            yield from members(member)
    else:
        yield hint


def fit(value: Any, hint: Any) -> Any:
    """The value as the annotation has it: the same, with whole numbers made floats where only those fit.

    Raises:
        Misfit: it has another type.
    """
    failures = []
    for member in members(hint):
        try:
            return _fit_member(value, member)
        except Misfit as misfit:
            failures.append(misfit)
    deep = [misfit for misfit in failures if misfit.path]
    raise deep[0] if len(deep) == 1 else Misfit(value, hint)


def _fit_member(value: Any, hint: Any) -> Any:
    base, arguments = get_origin(hint) or hint, get_args(hint)
    if base in (list, tuple) and isinstance(value, list):
        return _fit_items(value, base, hint, arguments)
    if base is dict and isinstance(value, dict):
        value_hint = arguments[1] if arguments else Any
        return {key: _inside(item, value_hint, key) for key, item in value.items()}
    if base is float and type(value) is int:
        return _as_float(value, hint)
    if not _is_member(value, base, arguments):
        raise Misfit(value, hint)
    return value


def _as_float(value: int, hint: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Misfit(value, hint) from None


def _fit_items(value: list[Any], base: type, hint: Any, arguments: tuple[Any, ...]) -> list[Any]:
    if base is tuple and arguments and arguments[-1] is not ...:
        if len(arguments) != len(value):
            raise Misfit(value, hint)
        hints = list(arguments)
    else:
        hints = [arguments[0] if arguments else Any] * len(value)
    return [_inside(item, hints[index], str(index)) for index, item in enumerate(value)]


def _inside(value: Any, hint: Any, key: str) -> Any:
    try:
        return fit(value, hint)
    except Misfit as misfit:
        raise Misfit(misfit.value, misfit.hint, (key, *misfit.path)) from None


def _is_member(value: Any, base: Any, arguments: tuple[Any, ...]) -> bool:
    if base is Any:
        return True
    if base is Literal:
        return any(type(value) is type(choice) and value == choice for choice in arguments)
    if dataclasses.is_dataclass(base):
        return isinstance(value, dict)
    if isinstance(base, type) and issubclass(base, enum.Enum):
        return isinstance(value, str) and value in base.__members__
    if isinstance(base, type) and issubclass(base, Path):
        return isinstance(value, str) and value != ""
    return type(value) is base


def takes_text(hint: Any) -> bool:
    """Whether some text could fit the annotation."""
    return any(
        member in (str, Any) or _is_path(member) or any(isinstance(choice, str) for choice in choices(member))
        for member in members(hint)
    )


def holds_paths(hint: Any) -> bool:
    """Whether the annotation is a path, or a container of paths."""
    return any(_is_path(member) or any(map(holds_paths, get_args(member))) for member in members(hint))


def _is_path(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Path)


def choices(hint: Any) -> tuple[Any, ...]:
    """The values that a Literal or Enum among the alternatives allows."""
    found: list[Any] = []
    for member in members(hint):
        if get_origin(member) is Literal:
            found += get_args(member)
        elif isinstance(member, type) and issubclass(member, enum.Enum):
            found += member.__members__
    return tuple(found)


def described(hint: Any) -> str:
    """An annotation in words: ``a whole number or null``, ``one of 'auto', 'eager'``."""
    words = []
    if allowed := choices(hint):
        words.append(f"one of {', '.join(map(repr, allowed))}")
    for member in members(hint):
        if not choices(member):
            words.append(_described_member(member))
    return " or ".join(dict.fromkeys(words))


def _described_member(hint: Any) -> str:
    base, arguments = get_origin(hint) or hint, get_args(hint)
    if base in (list, tuple) and arguments:
        inner = [described(argument) for argument in arguments if argument is not ...]
        if base is tuple and arguments[-1] is not ...:
            return f"a list of {len(inner)}: {', '.join(inner)}"
        return f"a list, each item {inner[0]}"
    if dataclasses.is_dataclass(base):
        return "a mapping"
    if _is_path(base):
        return "a path"
    return _WORDS[base] if base in _WORDS else str(getattr(base, "__name__", base))


def told(value: Any) -> str:
    """A value in words, short."""
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return f"a mapping of {', '.join(list(value)[:5]) or 'nothing'}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return f"the number {_digits(value)}"


def _digits(value: float) -> str:
    try:
        return str(value)[:40]
    except ValueError:  # Python prints no number of more than 4300 digits
        return "with thousands of digits"


def advice(misfit: Misfit, written: str) -> str | None:
    """What to do about a misfit that was ``written`` so."""
    value, hint = misfit.value, misfit.hint
    allowed = choices(hint)
    is_bare = isinstance(value, bool | int | float) and bool(written)
    if is_bare and takes_text(hint) and (not allowed or written in allowed):
        return f'YAML reads {written} as {told(value)}; quote it: "{written}"'
    if allowed:
        near = did_you_mean(str(value), [str(choice) for choice in allowed])
        return f"choose one of {', '.join(dict.fromkeys(map(str, allowed)))}{near}"
    if isinstance(value, str) and _fits(scalar(value), hint):
        return f"write it without quotes: {value}"
    if isinstance(value, float) and value.is_integer() and _fits(int(value), hint):
        return f"write {int(value)}"
    if not isinstance(value, list) and _fits([value], hint):
        return f"write it as a list: [{written or value}]"
    return None


def _fits(value: Any, hint: Any) -> bool:
    try:
        fit(value, hint)
    except Misfit:
        return False
    return True
