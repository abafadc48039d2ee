"""Who runs which cell: a file for each cell that is being run, locked by whoever runs it.

The lock ends with the process that holds it, however that ends, so a claim of the dead is free at once. The files tell
people and ``zoo compare --watch`` what is going on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.errors import UserError

_LOOKS = 3
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@dataclasses.dataclass
class Claim:
    """A cell that belongs to this process until ``free``, or its end and that of what it has forked."""

    path: Path
    descriptor: int

    def free(self) -> None:
        """Let others have it."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()  # while it is held: whoever opened it before finds that it is no longer the file
        os.close(self.descriptor)


class Claims:
    """The claims of a folder, which is made when the first one is taken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def take(self, name: str, **facts: Any) -> Claim | None:
        """Claim a name; ``None`` if another process has it.

        Args:
            name: a cell's address.
            facts: what others are told of it.

        Raises:
            UserError: the file system keeps no locks.
        """
        path, looks = self.folder / name, 0
        while True:
            descriptor = self._open(path)
            is_mine = _lock(descriptor, fcntl.LOCK_EX, path)
            if is_mine and _is_file(descriptor, path):
                break
            os.close(descriptor)
            if not is_mine:  # by a run, or for a moment by somebody who looks who has it
                looks += 1
                if looks == _LOOKS:
                    return None
                time.sleep(0.01)
        about = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.time(), **facts}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(about).encode(), 0)
        return Claim(path, descriptor)

    def _open(self, path: Path) -> int:
        while True:
            try:
                return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            except FileNotFoundError:
                self.folder.mkdir(parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """Names that somebody has, or had when it died."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(path.name for path in self.folder.iterdir())
        return []

    def sweep(self) -> None:
        """Take away what the dead have left."""
        for name in self.names():
            if claim := self.take(name):
                claim.free()

    def held(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Names that somebody has, with what is told of them; leftovers of the dead are passed over."""
        for name in self.names():
            if facts := _facts(self.folder / name):
                yield name, facts

    def is_held(self, name: str) -> bool:
        """Whether somebody has a name."""
        return bool(_facts(self.folder / name))


def _facts(path: Path) -> Mapping[str, Any] | None:
    """What is told of a claim that is held."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        if _lock(descriptor, fcntl.LOCK_SH, path):
            return None
        return json.loads(os.read(descriptor, 65536) or b"{}") or {"since": time.time()}
    except ValueError:  # it is being written
        return {"since": time.time()}
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise UserError(
                f"the file system keeps no locks ({error.strerror}), so that two workers could run one cell",
                where=str(path.parent),
                fix="choose a folder on another file system: --run DIR",
            ) from error
        raise
    return True


def _is_file(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one that stands under a path."""
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False
