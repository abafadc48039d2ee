"""Files that appear under their name only when they are complete and on disk."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from zoo.errors import RunFailed


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of ``path`` when the block ends well, and leaves no trace otherwise.

    Raises:
        RunFailed: the disk is full or the folder can't be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise RunFailed(f"can't write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Put ``content`` in place of the file."""
    with replacing(path) as file:
        file.write(content)


def write_json(path: Path, value: Any) -> None:
    """Put a JSON document in place of the file."""
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def link_or_copy(source: Path, path: Path) -> None:
    """Put the content of ``source`` in place of ``path``, sharing the disk space where the file system can."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # no hard links here
        with source.open("rb") as old, replacing(path) as new:
            shutil.copyfileobj(old, new)
        return
    temporary.replace(path)
    temporary.unlink(missing_ok=True)  # a rename onto another name of the same file does nothing
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut, where the system lets a folder be opened."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
