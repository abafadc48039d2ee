"""index.jsonl: a line for each end of a cell's run, so that a hundred thousand cells are known after one read.

Whoever ends a cell appends a line; the last line of an address counts. The run folders hold the same and more: the
index is made from them again where it is missing or damaged, and a cell without a line is looked up there before it
is run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from zoo.comparison.cells import Status
from zoo.errors import RunFailed

_CHECK = b',"check":"'
_DIGITS = 8
_TAIL = len(_CHECK) + _DIGITS + len(b'"}')
_STATUS = b'","status":"'


@dataclasses.dataclass(slots=True, kw_only=True)
class Record:
    """How a run ended.

    Attributes:
        address: of the cells.
        status: how it ended.
        reason: in words, where the status needs one.
        seconds: of this start of it, from taking the cell to its end.
        result: what result.json holds.
        costs: what costs.json holds.
    """

    address: str
    status: Status
    reason: str = ""
    seconds: float = 0.0
    result: dict[str, Any] = dataclasses.field(default_factory=dict)
    costs: dict[str, Any] = dataclasses.field(default_factory=dict)

    def line(self) -> bytes:
        """The line of the file."""
        values = {"address": self.address, "status": self.status, "reason": self.reason, "seconds": self.seconds}
        text = json.dumps({**values, "result": self.result, "costs": self.costs}, separators=(",", ":"))
        body = text[:-1].encode()
        return body + _CHECK + f"{zlib.crc32(body):08x}".encode() + b'"}\n'


class Entry:
    """A line that was read; what it holds is looked at when it is asked for.

    Attributes:
        status: how the run ended.
        place: where in the file the line stands.
    """

    __slots__ = ("line", "place", "status")

    def __init__(self, status: Status, place: int, line: bytes) -> None:
        self.status, self.place, self.line = status, place, line

    @property
    def record(self) -> Record:
        """All that it says."""
        return _record(json.loads(self.line))


class Index:
    """Reads the file as it grows, and appends to it.

    Args:
        path: the file, which needn't exist.

    Attributes:
        entries: the last line of each address that has been read.
        damaged: lines that couldn't be read; the last one, while it has no end, is none of them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.damaged = self.place = 0
        self._inode: int | None = None

    def read(self) -> list[str]:
        """Take in what has been added since; the addresses that it is about, in order."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            self._forget()
            return []
        with file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._inode or found.st_size < self.place:
                self._forget()
                self._inode = found.st_ino
            if found.st_size == self.place:
                return []
            file.seek(self.place)
            return self._take_in(file.read())

    def _take_in(self, text: bytes) -> list[str]:
        addresses: list[str] = []
        place, entries = self.place, self.entries
        whole = text.rfind(b"\n") + 1
        for line in text[:whole].split(b"\n")[:-1]:
            if head := _head(line):
                address, status = head
                entries[address] = Entry(status, place, line)
                addresses.append(address)
            else:
                self.damaged += 1
            place += len(line) + 1
        self.place = place
        return addresses

    def records(self, addresses: Iterable[str]) -> Iterator[Record]:
        """All that the lines of some addresses say; parsed as one document, which shares the names in them."""
        lines = [self.entries[address].line for address in addresses]
        return map(_record, json.loads(b"[" + b",".join(lines) + b"]"))

    def append(self, record: Record) -> None:
        """Add a line; one before it that was cut off is taken away.

        Raises:
            RunFailed: the disk is full, or the file can't be written.
        """
        try:
            with _locked(self.path) as file:
                _cut_torn_line(file)
                file.seek(0, os.SEEK_END)
                file.write(record.line())
                file.flush()
        except OSError as error:
            raise RunFailed(f"can't write {self.path}: {error.strerror or error}") from error

    def rebuild(self, records: Iterable[Record]) -> None:
        """Put a file with these lines in place of what is there; nobody appends meanwhile."""
        with _locked(self.path):
            temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
            with temporary.open("wb") as file:
                file.writelines(record.line() for record in records)
            temporary.replace(self.path)
        self._forget()
        self.read()


def _head(line: bytes) -> tuple[str, Status] | None:
    """Address and status of a line that is whole."""
    body = line[:-_TAIL]
    if line[-_TAIL : -_DIGITS - 2] != _CHECK or line[-2:] != b'"}':
        return None
    if b"%08x" % zlib.crc32(body) != line[-_DIGITS - 2 : -2]:
        return None
    begin = len(b'{"address":"')
    end = line.index(_STATUS, begin)
    status = line[end + len(_STATUS) : line.index(b'"', end + len(_STATUS))]
    return line[begin:end].decode(), status.decode()  # type: ignore[return-value]


def _record(values: dict[str, Any]) -> Record:
    values.pop("check", None)
    return Record(**values)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """The file, open to read and write and held against others that would change it."""
    while True:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                is_current = os.fstat(file.fileno()).st_ino == path.stat().st_ino
            except FileNotFoundError:
                is_current = False
            if is_current:
                yield file
                return


def _cut_torn_line(file: BinaryIO) -> None:
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 4096)
        file.seek(start)
        last = file.read(end - start).rfind(b"\n")
        if last >= 0:
            end = start + last + 1
            break
        end = start
    file.truncate(end)
