"""Contract of an executor: starts workers, on this machine or others, that run the cells of a comparison."""

from __future__ import annotations

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from zoo.config import Part


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What an executor is given: cells that are to be run, and the command that runs them.

    A worker takes the cells of its range that nobody else has taken, one after another, writes their results below
    ``folder``, and ends when none is left. How many there are, where, and in which order they begin changes no
    result.
    """

    folder: Path
    """The comparison's; every worker must see it under this path, on a file system that keeps locks."""
    cells: Sequence[str]
    """Addresses of the cells, in the order in which they are best begun."""
    command: Sequence[str]
    """What starts a worker; see ``worker``."""
    environment: Mapping[str, str]
    """Variables that a worker needs beside those of this process."""
    logs: Path
    """A folder, which exists, for what workers say."""
    stop: Path
    """A file that doesn't exist yet; once it does, workers save their cell's state and end."""
    devices: int = 1
    """Devices of the cell that needs most."""

    def worker(self, first: int = 0, end: int | None = None, *, bound: bool = False) -> list[str]:
        """The command of a worker.

        Args:
            first, end: the range of ``cells`` that it takes from; by default all.
            bound: whether it ends when this process is gone, which must be its parent.
        """
        cells = f"{first}:{len(self.cells) if end is None else end}"
        return [*self.command, "--cells", cells, *(["--parent", str(os.getpid())] if bound else [])]


class Crew(ABC):
    """Workers that were started. Made as ``Crew(work)``."""

    def __init__(self, work: Work) -> None:
        self.work = work

    @abstractmethod
    def running(self) -> int:
        """Workers that haven't ended, those that wait for a place included; asked for several times a second."""

    def stop(self) -> None:
        """Have every worker save its cell's state and end, and let none begin that waits; doesn't wait for that.

        What is done here reaches every worker in about a second; a subclass may add what is faster.
        """
        self.work.stop.touch()


class Executor(Part, ABC):
    """Starts workers. Made as ``Executor(config)``."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Part.Config):
        """Knobs that every executor has."""

        workers: int | None = None
        """Workers at a time; null is the executor's own choice."""

        def __post_init__(self) -> None:
            if self.workers is not None and self.workers < 1:
                raise ValueError(f"workers is {self.workers}; it must be at least 1, or null")

    sample: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Knobs with which it can be tried on any machine."""

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def start(self, work: Work) -> Crew:
        """Start workers, never more than there are cells, or ask a cluster for them; returns at once.

        A worker that ends badly is no error: the cells that it leaves are given to the next crew.

        Raises:
            UserError: there is no way to start any here.
        """
