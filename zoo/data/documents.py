"""Documents: texts of files, of JSONL lines or of Python itself, read one at a time and found again by place.

A source is walked once to learn what is there (``scan``: a hash and a length a document, not the text), and a
document is read again when its tokens are wanted, so that a source may be larger than memory. One document
must fit into it.
"""

from __future__ import annotations

import difflib
import glob
import hashlib
import logging
import platform
import sysconfig
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo.contracts.tokenizer import utf8
from zoo.data.decoding import JSON_LINES, Errors, decode_utf8, open_bytes, parse_json, text_under
from zoo.errors import UserError

logger = logging.getLogger(__name__)

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
            if path.suffix.lower() in JSON_LINES:
                yield from self._walk_lines(path)
            else:
                place = FilePlace(path, 0, 0, -1)
                yield place, self.read(place)
        if count := sum(self.replaced.values()):
            first = self.name(next(place for place, replaced in self.replaced.items() if replaced))
            logger.warning("%d pieces that are no UTF-8 were replaced by U+FFFD, the first in %s", count, first)

    def _walk_lines(self, path: Path) -> Iterator[tuple[FilePlace, str]]:
        offset = 0
        with open_bytes(path) as lines:
            for number, line in enumerate(lines, start=1):
                place = FilePlace(path, number, offset, len(line))
                offset += len(line)
                if line.strip():
                    yield place, self._decode(place, line)

    def read(self, place: FilePlace) -> str:
        """The text at a place."""
        with open_bytes(place.path) as stream:
            stream.seek(place.offset)
            return self._decode(place, stream.read(place.length))

    def name(self, place: FilePlace) -> str:
        """``file`` or ``file:line``."""
        return f"{place.path}:{place.line}" if place.line else str(place.path)

    def _decode(self, place: FilePlace, data: bytes) -> str:
        where = self.name(place)
        text, replaced = decode_utf8(data, where=where, offset=place.offset, errors=self.errors)
        if place.line:
            record = parse_json(text, where=where)
            text, halves = text_under(record, self.field, knob="data.field", where=where, errors=self.errors)
            replaced += halves
        if replaced:
            self.replaced[place] = replaced
        return text


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


def check_source(source: str, files: Sequence[Path], dataset: str | None = None) -> None:
    """Refuse a source that lacks what it reads, and files or a data set that the source doesn't read.

    Raises:
        UserError: names both.
    """
    if (source == "files") != bool(files):
        raise UserError(
            f"source is {source!r}, and files has {len(files)} entries",
            where="data.source, data.files",
            fix="set source: files together with files: [PATH, ...], or neither",
        )
    if (source == "hub") != bool(dataset):
        raise UserError(
            f"source is {source!r}, and dataset is {dataset!r}",
            where="data.source, data.dataset",
            fix="set source: hub together with dataset: NAME, or neither",
        )


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
