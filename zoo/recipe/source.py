"""YAML in and out: nodes that know their line, and the dialect of a recipe.

The dialect is YAML 1.1 as PyYAML's safe loader reads it, with four changes that keep values what they look
like: ``1e-4`` is a number, ``12:30`` and ``2024-01-01`` are text, ``010`` is refused, and a key is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import yaml

from zoo.errors import UserError
from zoo.recipe.node import MAX_DEPTH, MAX_NODES, Node, Origin, Scalar, shown

MAX_BYTES = 1_000_000

_TAG = "tag:yaml.org,2002:"
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF")
_INT = re.compile(r"[-+]?(0b[0-1_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)")
_FLOAT = re.compile(
    r"[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?)"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: ClassVar[dict[str | None, list[tuple[str, re.Pattern[str]]]]] = {}


class _Dumper(yaml.SafeDumper):
    """Quotes what either YAML 1.1 or a recipe would read as something else than text."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _write_string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Line breaks and the like are escaped; between other quotes YAML would fold them."""
    return dumper.represent_scalar(_TAG + "str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(str, _write_string)
for _name, _pattern, _first in (
    ("bool", _BOOL, list("yYnNtTfFoO")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+0123456789.")),
    ("merge", re.compile("<<"), ["<"]),
    ("null", _NULL, ["~", "n", "N", ""]),
):
    _whole = re.compile(rf"(?:{_pattern.pattern})\Z")
    _Loader.add_implicit_resolver(_TAG + _name, _whole, _first)
    _Dumper.add_implicit_resolver(_TAG + _name, _whole, _first)


def read_file(file: Path, kind: Any) -> Node:
    """The mapping that a recipe file holds; ``kind`` is that of its values' origin.

    Raises:
        UserError: a file that can't be read, is no UTF-8, no YAML or no mapping, names a key twice, or is
            too large or too deep.
    """
    node = read_text(_text_of(file), lambda line, text: Origin(kind, file, line, text))
    if node.value is None:
        raise UserError("the recipe is empty", where=f"{shown(file)}:1", fix="write at least `base: NAME`")
    if not isinstance(node.value, dict):
        raise UserError("a recipe is a mapping of keys to values, this file isn't one", where=str(node.origin))
    return node


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"the recipe can't be read: {error.strerror}", where=str(file.absolute())) from error
    if len(data) > MAX_BYTES:
        raise UserError(f"a file of more than {MAX_BYTES:,} bytes is no recipe", where=str(file.absolute()))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"the file isn't UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}",
            where=f"{shown(file)}:{line}",
            fix="name a YAML file",
        ) from error


def read_text(text: str, origin: Callable[[int, str], Origin]) -> Node:
    """The node of a YAML text; ``origin`` makes an origin of a line and a scalar's own text.

    Raises:
        UserError: as ``read_file``.
    """
    try:
        _check_depth(text, origin)
        root = _Loader(text).get_single_node()
        return _Reader(origin).node(root) if root else Node(None, origin(1, ""))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"the character {chr(error.character)!r} can't be in YAML" if _is_code(error) else str(error)
        raise UserError(what, where=str(origin(line, "")), fix="name a text file") from error
    except UnicodeEncodeError as error:  # a command line's bytes that are no text in its locale
        raise UserError("this holds bytes that are no UTF-8", where=str(origin(1, ""))) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(filter(None, (error.context, error.problem)))
        raise UserError(
            f"this isn't YAML: {what}",
            where=str(origin(mark.line + 1 if mark else 1, "")),
            fix="indent with spaces, not with tabs"
            if mark and _has_tab(text, mark)
            else "quote texts that hold any of : # { } [ ] & * ! | ? @ %",
        ) from error


def _has_tab(text: str, mark: yaml.Mark) -> bool:
    lines = text.split("\n")
    return mark.line < len(lines) and "\t" in lines[mark.line][: mark.column + 1]


def _is_code(error: yaml.reader.ReaderError) -> bool:
    return isinstance(error.character, int)


def _check_depth(text: str, origin: Callable[[int, str], Origin]) -> None:
    """Refuse deep nesting from the event stream, before anything recurses into it."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise UserError(f"the recipe is nested deeper than {MAX_DEPTH}", where=str(origin(line, "")))


class _Reader:
    """Turns YAML's nodes into ours, aliases and merge keys expanded, everything counted."""

    def __init__(self, origin: Callable[[int, str], Origin]) -> None:
        self.origin = origin
        self.count = 0

    def node(self, node: yaml.Node, line: int | None = None, depth: int = 0) -> Node:
        """``line`` is that of the key, where there is one."""
        here = line or node.start_mark.line + 1
        self.count += 1
        if self.count > MAX_NODES or depth > MAX_DEPTH:
            limit = f"{MAX_NODES:,} values" if self.count > MAX_NODES else f"{MAX_DEPTH} levels"
            raise UserError(f"with its aliases expanded the recipe has more than {limit}", where=self.at(here))
        if isinstance(node, yaml.MappingNode):
            self.check_tag(node, "map")
            return Node(self.mapping(node, depth), self.origin(here, ""))
        if isinstance(node, yaml.SequenceNode):
            self.check_tag(node, "seq")
            return Node([self.node(item, depth=depth + 1) for item in node.value], self.origin(here, ""))
        assert isinstance(node, yaml.ScalarNode)
        return Node(self.scalar(node), self.origin(here, node.value), node.value)

    def at(self, line: int) -> str:
        return str(self.origin(line, ""))

    def mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Node]:
        lines: dict[str, int] = {}
        merged: dict[str, Node] = {}
        own: dict[str, Node] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self.key(key_node, line)
            if key in lines:
                raise UserError(
                    f"the key {key!r} stands twice, in lines {lines[key]} and {line}",
                    where=self.at(line),
                    fix="remove one of the two",
                )
            lines[key] = line
            if ":" in key and value_node.start_mark.index == value_node.end_mark.index:
                name, _, value = key.partition(":")
                raise UserError(
                    f"the key {key!r} has no value",
                    where=self.at(line),
                    fix=f"put a space after the colon: {name}: {value}",
                )
            if key_node.tag == _TAG + "merge":
                merged = self.merged(value_node, depth)
            else:
                own[key] = self.node(value_node, line, depth + 1)
        return {**merged, **own}

    def merged(self, node: yaml.Node, depth: int) -> dict[str, Node]:
        """What ``<<`` brings in; of several mappings the first wins."""
        result: dict[str, Node] = {}
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            inner = self.node(source, depth=depth + 1)
            if not isinstance(inner.value, dict):
                raise UserError("`<<` takes a mapping or a list of mappings", where=str(inner.origin))
            result = {**inner.value, **result}
        return result

    def key(self, node: yaml.Node, line: int) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise UserError("a key must be text, not a list or mapping", where=self.at(line))
        if node.tag not in (_TAG + "str", _TAG + "merge"):
            raise UserError(
                f"YAML reads the key {node.value!r} as {_told(self.scalar(node))}; a key is text",
                where=self.at(line),
                fix=f'quote it: "{node.value}"',
            )
        return node.value

    def scalar(self, node: yaml.ScalarNode) -> Scalar:
        line = node.start_mark.line + 1
        text, tag = node.value, node.tag.removeprefix(_TAG)
        if tag in ("str", "merge"):
            return text
        try:
            return _CONSTRUCT[tag](text)
        except KeyError:
            self.check_tag(node, "str")
        except _LeadingZero:
            raise UserError(
                f"{text} can be the number {_stripped(text)}, octal or text; a recipe doesn't guess",
                where=self.at(line),
                fix=f'quote it if it is text: "{text}"; else write the number without leading zeros',
            ) from None
        except ValueError as error:
            raise UserError(f"{text[:40]!r} is no {tag}: {error}", where=self.at(line)) from error
        raise AssertionError("check_tag refuses every tag without a constructor")

    def check_tag(self, node: yaml.Node, expected: str) -> None:
        """Refuse tags: a recipe is plain data and never names a Python object."""
        if node.tag != _TAG + expected:
            raise UserError(
                f"the tag {node.tag.replace(_TAG, '!!')} isn't allowed in a recipe",
                where=self.at(node.start_mark.line + 1),
                fix="write plain text, numbers, lists and mappings",
            )


class _LeadingZero(Exception):
    pass


def _whole_number(text: str) -> int:
    if _LEADING_ZERO.fullmatch(text):
        raise _LeadingZero
    return int(text.replace("_", ""), 0)


def _number(text: str) -> float:
    return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))


def _truth(text: str) -> bool:
    if not _BOOL.fullmatch(text):
        raise ValueError("write true or false")
    return text.lower() in ("yes", "true", "on")


_CONSTRUCT: dict[str, Callable[[str], Scalar]] = {
    "null": lambda text: None,
    "bool": _truth,
    "int": _whole_number,
    "float": _number,
}


def _stripped(text: str) -> str:
    return text.replace("_", "").lstrip("+-0") or "0"


def _told(value: Scalar) -> str:
    return {True: "true", False: "false", None: "null"}.get(value, f"the number {value}")  # type: ignore[arg-type]


def scalar(text: str) -> Scalar:
    """What a recipe reads a bare word as; for values that come from the environment as text."""
    for tag, pattern in (("null", _NULL), ("bool", _BOOL), ("float", _FLOAT)):
        if text and pattern.fullmatch(text):
            return _CONSTRUCT[tag](text)
    return _whole_number(text) if _INT.fullmatch(text) and not _LEADING_ZERO.fullmatch(text) else text


def write_text(tree: dict[str, Any]) -> str:
    """YAML of a plain tree, which ``read_text`` reads back as it was."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
