"""Token cache: ids of a whole data set in one file, written once, mapped into memory by every process.

Layout, little endian::

    64 bytes   magic, version, bytes per id, number of ids, length and SHA-256 of the JSON
    ids        uint8, uint16 or uint32, whatever the vocabulary allows; the parts one after the other
    JSON       identity, vocabulary size, largest id, length of each part, SHA-256 of each block of ids, notes

A file appears under its name only when it is complete and on disk (temporary name, fsync, rename), one process
writes while the others wait for its lock, which ends with the process, and what is damaged is built again.

Decoded images are kept in the same way, with bytes for ids.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import json
import logging
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from zoo.errors import UserError

logger = logging.getLogger(__name__)

_MAGIC, _VERSION = b"ZOOTOKEN", 1
_PRELUDE = struct.Struct("<8sIIQQ32s")
_BLOCK = 1 << 24
_BLOCKS_CHECKED = 16
_checked: set[tuple[str, int, int, int]] = set()


class DamagedCache(Exception):
    """A token file that is not what it should be; it is built again, never read."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokens:
    """What a token file is written from."""

    vocab_size: int
    """Number of ids; decides their width in the file."""
    parts: Mapping[str, Iterable[np.ndarray]]
    """Ids of each part, in chunks of any length; read once, one part after the other."""
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """JSON values to keep with the ids, for example the tokenizer's state."""


class TokenCache:
    """A token file, open for reading.

    Attributes:
        path: the file.
        parts: ids of each part, (n,) uint8, uint16 or uint32, mapped from the file.
        vocab_size: number of ids that the file was made for.
        notes: the JSON values that were kept with the ids.

    Raises:
        DamagedCache: the file is missing, short, altered, or of other data.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path, self.identity = path, dict(identity)
        header, width = _read_header(path)
        _check_header(header, width, identity)
        parts: dict[str, int] = header["parts"]
        ids = np.asarray(np.memmap(path, _dtype(width), mode="r", offset=_PRELUDE.size, shape=sum(parts.values())))
        _check_blocks(path, ids, header["blocks"])
        ends = itertools.accumulate(parts.values())
        self.parts = {name: ids[end - parts[name] : end] for name, end in zip(parts, ends, strict=True)}
        self.vocab_size: int = header["vocab_size"]
        self.notes: dict[str, Any] = header["notes"]

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process maps the file itself; a pickled map would carry the ids."""
        return TokenCache, (self.path, self.identity)


def open_or_build(folder: Path, identity: Mapping[str, Any], build: Callable[[], Tokens]) -> TokenCache:
    """The token file of an identity; built first if there is none, by one process while the others wait.

    Args:
        folder: where token files are kept; made if it is missing.
        identity: JSON values that decide the ids; their hash is the file's name.
        build: what to write; called only if there is no valid file.

    Raises:
        UserError: the folder can't be written, the disk is full, or an id is outside the vocabulary.
    """
    name = hashlib.sha256(_canonical(identity)).hexdigest()[:32]
    path = folder / f"{name}.tokens"
    try:
        with contextlib.suppress(DamagedCache):
            return TokenCache(path, identity)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f"{name}.lock"):
            return _open_or_write(path, identity, build)
    except OSError as error:
        raise UserError(
            f"can't use the token cache: {error.strerror or error}",
            where=str(error.filename or path),
            fix="free some space or make the folder writable, or set ZOO_CACHE to another folder",
        ) from error


def _open_or_write(path: Path, identity: Mapping[str, Any], build: Callable[[], Tokens]) -> TokenCache:
    try:
        return TokenCache(path, identity)
    except DamagedCache as error:
        if path.exists():
            logger.warning("building %s again: %s", path, error)
    for left_over in path.parent.glob(f".{path.name}.tmp-*"):
        left_over.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with temporary.open("wb") as stream:
            _write(stream, identity, build())
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return TokenCache(path, identity)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, made if it is missing; others wait, until this process ends at the latest."""
    with path.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("waiting for the process that holds %s", path)
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(stream: BinaryIO, identity: Mapping[str, Any], tokens: Tokens) -> None:
    dtype = _dtype(_width(tokens.vocab_size))
    stream.write(bytes(_PRELUDE.size))
    writer = _Writer(stream, dtype, tokens.vocab_size)
    parts = {name: writer.write(chunks) for name, chunks in tokens.parts.items()}
    header = {
        "identity": dict(identity),
        "vocab_size": tokens.vocab_size,
        "largest": writer.largest,
        "parts": parts,
        "blocks": writer.blocks(),
        "notes": dict(tokens.notes),
    }
    text = json.dumps(header).encode()
    stream.write(text)
    stream.seek(0)
    count, digest = sum(parts.values()), hashlib.sha256(text).digest()
    stream.write(_PRELUDE.pack(_MAGIC, _VERSION, dtype.itemsize, count, len(text), digest))


class _Writer:
    """Writes ids in the file's width, and keeps their largest and the hash of each block."""

    def __init__(self, stream: BinaryIO, dtype: np.dtype, vocab_size: int) -> None:
        self.stream, self.dtype, self.vocab_size = stream, dtype, vocab_size
        self.largest = -1
        self._digests: list[str] = []
        self._hash, self._room = hashlib.sha256(), _BLOCK

    def write(self, chunks: Iterable[np.ndarray]) -> int:
        """Append chunks of ids; how many ids it were."""
        count = 0
        for chunk in chunks:
            if chunk.size:
                self._check(chunk)
                data = chunk.astype(self.dtype).data.cast("B")
                self.stream.write(data)
                self._add_to_blocks(data)
            count += chunk.size
        return count

    def _check(self, chunk: np.ndarray) -> None:
        smallest, largest = int(chunk.min()), int(chunk.max())
        if smallest < 0 or largest >= self.vocab_size:
            wrong = smallest if smallest < 0 else largest
            raise UserError(
                f"the tokenizer gave id {wrong}, but its vocabulary has ids 0 to {self.vocab_size - 1}",
                where="data.tokenizer",
                fix="correct the tokenizer's vocab_size",
            )
        self.largest = max(self.largest, largest)

    def _add_to_blocks(self, data: memoryview) -> None:
        while data:
            piece, data = data[: self._room], data[self._room :]
            self._hash.update(piece)
            self._room -= len(piece)
            if not self._room:
                self._digests.append(self._hash.hexdigest())
                self._hash, self._room = hashlib.sha256(), _BLOCK

    def blocks(self) -> list[str]:
        """SHA-256 of each 16 MiB of ids; the last one may be shorter."""
        return self._digests + ([self._hash.hexdigest()] if self._room < _BLOCK else [])


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    try:
        with path.open("rb") as stream:
            prelude, size = stream.read(_PRELUDE.size), os.fstat(stream.fileno()).st_size
            if len(prelude) < _PRELUDE.size:
                raise DamagedCache(f"only {size} bytes long")
            magic, version, width, count, length, digest = _PRELUDE.unpack(prelude)
            if magic != _MAGIC or version != _VERSION or width not in (1, 2, 4):
                raise DamagedCache("not a token file of this version")
            if size != _PRELUDE.size + count * width + length:
                raise DamagedCache(f"{size} bytes long, not {_PRELUDE.size + count * width + length}")
            stream.seek(size - length)
            text = stream.read(length)
    except FileNotFoundError:
        raise DamagedCache("no such file") from None
    if hashlib.sha256(text).digest() != digest:
        raise DamagedCache("its description was altered")
    return json.loads(text), width


def _check_header(header: dict[str, Any], width: int, identity: Mapping[str, Any]) -> None:
    if _canonical(header["identity"]) != _canonical(identity):
        raise DamagedCache("it holds other data, or ids of another tokenizer")
    if width != _width(header["vocab_size"]):
        raise DamagedCache(f"ids of {width} bytes for a vocabulary of {header['vocab_size']}")
    if header["largest"] >= header["vocab_size"]:
        raise DamagedCache(f"id {header['largest']} is outside its vocabulary of {header['vocab_size']}")


def _check_blocks(path: Path, ids: np.ndarray, digests: list[str]) -> None:
    """Compare the hashes of up to 16 blocks, spread over the file: all of a file below 256 MiB, once a process."""
    status = path.stat()
    key = (str(path), status.st_ino, status.st_size, status.st_mtime_ns)
    if key in _checked:
        return
    data = ids.view(np.uint8).data
    checked = np.linspace(0, len(digests) - 1, min(len(digests), _BLOCKS_CHECKED)).astype(int)
    for block in checked:
        if hashlib.sha256(data[block * _BLOCK : (block + 1) * _BLOCK]).hexdigest() != digests[block]:
            raise DamagedCache("its ids were altered")
    _checked.add(key)


def _width(vocab_size: int) -> int:
    return next(width for width in (1, 2, 4) if vocab_size <= 256**width)


def _dtype(width: int) -> np.dtype:
    return np.dtype(f"<u{width}")


def _canonical(identity: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(identity), sort_keys=True).encode()
