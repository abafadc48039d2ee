"""Documents: texts of files, of JSONL lines or of Python itself, read one at a time and found again by place.

A source is walked once to learn what is there (``scan``: a hash and a length a document, not the text), and a
document is read again when its tokens are wanted, so that a source may be larger than memory. One document
must fit into it.
"""

from __future__ import annotations

import difflib
import glob
import hashlib
import json
import logging
import platform
import re
import sysconfig
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from zoo.contracts.tokenizer import utf8
from zoo.errors import UserError

Errors = Literal["error", "replace"]

logger = logging.getLogger(__name__)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_LINES = {".jsonl", ".ndjson"}
_NO_STDLIB = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "encodings", "pydoc_data"}


class Document(NamedTuple):
    """What is kept of a document between readings."""

    digest: bytes
    """SHA-256 of its UTF-8 bytes."""
    size: int
    """Length in UTF-8 bytes."""
    characters: int
    """Length in characters."""
    place: Any
    """Where the source finds it again."""


class Documents(ABC):
    """A source of documents."""

    @abstractmethod
    def walk(self) -> Iterator[tuple[Any, str]]:
        """Every document with its place, in any order, empty ones included."""

    @abstractmethod
    def read(self, place: Any) -> str:
        """The document at a place, as ``walk`` gave it."""

    @abstractmethod
    def name(self, place: Any) -> str:
        """How messages call a place: a file, a line of a file, a topic."""

    def scan(self) -> list[Document]:
        """All documents that hold at least one character.

        Raises:
            UserError: a text that can't be read or decoded, with its file and offset.
        """
        return [self._describe(place, text) for place, text in self.walk() if text]

    def _describe(self, place: Any, text: str) -> Document:
        data = self._utf8(place, text)
        return Document(hashlib.sha256(data).digest(), len(data), len(text), place)

    def text(self, document: Document) -> str:
        """The text of a document.

        Raises:
            UserError: it isn't the text that was scanned.
        """
        text = self.read(document.place)
        if hashlib.sha256(self._utf8(document.place, text)).digest() != document.digest:
            raise UserError(
                "a document changed while it was being read",
                where=self.name(document.place),
                fix="start again when nothing writes to it any more",
            )
        return text

    def _utf8(self, place: Any, text: str) -> bytes:
        try:
            return utf8(text)
        except UserError as error:
            raise UserError(error.what, where=self.name(place), fix=error.fix) from None


class PythonDocs(Documents):
    """Python's own reference, as ``help("topics")`` shows it: a document a topic, about 470 kB of English."""

    def walk(self) -> Iterator[tuple[str, str]]:
        """Topics in alphabetical order."""
        yield from sorted(_topics().items())

    def read(self, place: str) -> str:
        """The text of a topic."""
        return _topics()[place]

    def name(self, place: str) -> str:
        """The topic, with the version of Python that it describes."""
        return f"Python {platform.python_version()}, topic {place!r}"


def _topics() -> dict[str, str]:
    from pydoc_data.topics import topics

    return topics


class FilePlace(NamedTuple):
    """Where a document lies: a whole file (``line`` 0), or ``length`` bytes from ``offset``, line ``line``."""

    path: Path
    line: int
    offset: int
    length: int


class Files(Documents):
    """Text files, a document a file; of ``.jsonl`` files a document a line.

    A byte order mark is dropped; everything else, NUL and CRLF too, stays as it is.

    Args:
        paths: the files.
        field: key of the text in each JSONL line.
        errors: what to do with bytes that are no UTF-8 and with halves of surrogate pairs: stop, or put U+FFFD
            in their place and log how many.
    """

    def __init__(self, paths: Sequence[Path], *, field: str = "text", errors: Errors = "error") -> None:
        self.paths, self.field, self.errors = paths, field, errors
        self.replaced: dict[FilePlace, int] = {}

    def walk(self) -> Iterator[tuple[FilePlace, str]]:
        """Documents in the order of the paths."""
        for path in self.paths:
            if path.suffix.lower() in _JSON_LINES:
                yield from self._walk_lines(path)
            else:
                place = FilePlace(path, 0, 0, -1)
                yield place, self.read(place)
        if count := sum(self.replaced.values()):
            first = self.name(next(place for place, replaced in self.replaced.items() if replaced))
            logger.warning("%d pieces that are no UTF-8 were replaced by U+FFFD, the first in %s", count, first)

    def _walk_lines(self, path: Path) -> Iterator[tuple[FilePlace, str]]:
        offset = 0
        with _open(path) as lines:
            for number, line in enumerate(lines, start=1):
                place = FilePlace(path, number, offset, len(line))
                offset += len(line)
                if line.strip():
                    yield place, self._decode(place, line)

    def read(self, place: FilePlace) -> str:
        """The text at a place."""
        with _open(place.path) as stream:
            stream.seek(place.offset)
            return self._decode(place, stream.read(place.length))

    def name(self, place: FilePlace) -> str:
        """``file`` or ``file:line``."""
        return f"{place.path}:{place.line}" if place.line else str(place.path)

    def _decode(self, place: FilePlace, data: bytes) -> str:
        text, replaced = self._decode_bytes(place, data)
        if place.line:
            text, halves = self._decode_line(place, text)
            replaced += halves
        if replaced:
            self.replaced[place] = replaced
        return text

    def _decode_bytes(self, place: FilePlace, data: bytes) -> tuple[str, int]:
        skipped = len(_BYTE_ORDER_MARK) if place.offset == 0 and data.startswith(_BYTE_ORDER_MARK) else 0
        data = data[skipped:]
        try:
            return data.decode(), 0
        except UnicodeDecodeError as error:
            if self.errors == "error":
                offset = place.offset + skipped + error.start
                raise UserError(
                    f"byte {offset} of the file (0x{data[error.start]:02X}) is no UTF-8 text: {error.reason}",
                    where=self.name(place),
                    fix="convert the file to UTF-8, name only text files, or set data.errors: replace",
                ) from None
        text = data.decode(errors="replace")
        return text, text.count("\ufffd") - data.count("\ufffd".encode())

    def _decode_line(self, place: FilePlace, line: str) -> tuple[str, int]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            at = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
            fix = "correct or remove the line"
            raise UserError(f"not a line of JSON: {at}", where=self.name(place), fix=fix) from None
        if not isinstance(record, dict) or not isinstance(record.get(self.field), str):
            raise UserError(
                f"no text under the key {self.field!r}; {_shape(record)}",
                where=self.name(place),
                fix="name the key that holds the text: data.field",
            )
        if self.errors == "replace":
            return _SURROGATE.subn("\ufffd", record[self.field])
        return record[self.field], 0


def _open(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"can't read {path}: {error.strerror}", where="data.files") from None


def _shape(record: Any) -> str:
    if not isinstance(record, dict):
        return f"the line is a {type(record).__name__}, not an object"
    return "the line has " + (
        ", ".join(f"{key} ({type(value).__name__})" for key, value in record.items()) or "no keys"
    )


def standard_library() -> list[Path]:
    """Python's own library: its sources, as people wrote them, without tests; about 10 MB.

    Generated files are left out: the tables of ``encodings``, near twins of each other that would stand in
    training and validation both; ``pydoc_data``, which is prose (``python-docs``) in quotation marks; and
    ``_sysconfigdata``, which differs from machine to machine.
    """
    root = Path(sysconfig.get_path("stdlib"))
    sources = [
        path
        for path in sorted(root.rglob("*.py"))
        if not _NO_STDLIB & set(path.relative_to(root).parts) and not path.name.startswith("_sysconfigdata")
    ]
    if not sources:
        raise UserError(f"this Python has no sources in {root}", where="data.source", fix="use source: python-docs")
    return sources


def find_files(patterns: Iterable[Path]) -> list[Path]:
    """Files that paths, folders and globs (``**`` for any depth) name, each once; hidden ones in folders left out.

    Raises:
        UserError: a pattern that names no file.
    """
    found = {path.resolve(): None for pattern in patterns for path in _expand(pattern.expanduser())}
    return list(found)


def _expand(pattern: Path) -> list[Path]:
    if pattern.is_file():
        return [pattern]
    if pattern.is_dir():
        inside = (path.relative_to(pattern) for path in sorted(pattern.rglob("*")) if path.is_file())
        files = [pattern / path for path in inside if not any(part.startswith(".") for part in path.parts)]
    else:
        names = glob.glob(str(pattern), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        files = [Path(name) for name in sorted(names) if Path(name).is_file()]
    if not files:
        fix = "name files, folders or globs such as texts/**/*.txt"
        raise UserError(_nothing(pattern), where="data.files", fix=fix)
    return files


def _nothing(pattern: Path) -> str:
    if pattern.is_dir():
        return f"no file in the folder {pattern}"
    if pattern.exists():
        return f"{pattern} is no regular file"
    if glob.has_magic(str(pattern)):
        return f"no file matches {pattern}"
    siblings = [path.name for path in pattern.parent.iterdir()] if pattern.parent.is_dir() else []
    near = difflib.get_close_matches(pattern.name, siblings)
    return f"no file {pattern}" + (f"; did you mean {', '.join(near)}?" if near else "")
