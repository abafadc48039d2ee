"""Starts one worker process on this machine; change what ``start`` and the crew say.

A worker takes cells until none is left. Whoever starts workers elsewhere has a queue run ``work.worker()`` there.
"""

from __future__ import annotations

import os
import subprocess

from zoo.contracts.executor import Crew, Executor, Work

__all__ = ["Mine"]


class Mine(Executor):
    """One process."""

    def start(self, work: Work) -> Crew:
        """Start it."""
        return Started(work)


class Started(Crew):
    """The process; it finds the file ``work.stop`` by itself."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        with (work.logs / "worker.txt").open("ab") as log:
            environment = {**os.environ, **work.environment}
            self.process = subprocess.Popen(work.worker(bound=True), env=environment, stderr=log, process_group=0)

    def running(self) -> int:
        """1 until it has ended."""
        return int(self.process.poll() is None)
