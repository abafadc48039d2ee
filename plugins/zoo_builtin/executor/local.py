"""Worker processes on this machine, among which its GPUs are shared out.

Worker i of n gets the devices i, i + n, i + 2 n, ...; with more workers than devices, device i modulo their number.
A worker ends with the process that started it, even if that is killed. Cost: a process takes about 10 s to start and
0.5 GB, and then serves any number of cells.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import final

import torch

from zoo.contracts.executor import Crew, Executor, Work

__all__ = ["Local"]

VISIBLE = "CUDA_VISIBLE_DEVICES"


@final
class Local(Executor):
    """As many workers as there are devices, or one, unless ``workers`` says otherwise."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Executor.Config):
        """Which devices."""

        devices: list[str] | None = None
        """GPUs that are shared out, as ``CUDA_VISIBLE_DEVICES`` names them; null is all that this process sees."""

    def start(self, work: Work) -> Crew:
        """Start the processes."""
        devices = visible_devices() if self.config.devices is None else self.config.devices
        count = self.config.workers or max(1, len(devices) // max(1, work.devices))
        count = min(count, len(work.cells))
        return _Processes(work, [share(devices, number, count) for number in range(count)])


def visible_devices() -> list[str]:
    """Names of the GPUs that this process may use."""
    if (said := os.environ.get(VISIBLE)) is not None:
        return [name for name in said.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]


def share(devices: list[str], number: int, count: int) -> Mapping[str, str]:
    """The environment variable with the devices of worker ``number`` of ``count``."""
    if not devices:
        return {}
    return {VISIBLE: ",".join(devices[number::count] or [devices[number % len(devices)]])}


class _Processes(Crew):
    """A process for each environment."""

    def __init__(self, work: Work, environments: list[Mapping[str, str]]) -> None:
        super().__init__(work)
        self._processes = [self._start(number, own) for number, own in enumerate(environments)]

    def _start(self, number: int, own: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with (self.work.logs / f"local-{os.getpid()}-{number}.txt").open("ab") as log:
            return subprocess.Popen(
                self.work.worker(bound=True),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.work.environment, **own},
                process_group=0,  # a Ctrl-C of the terminal reaches this process alone, which passes it on once
            )

    def running(self) -> int:
        """Processes that haven't ended."""
        return sum(process.poll() is None for process in self._processes)

    def stop(self) -> None:
        """Send SIGTERM."""
        super().stop()
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
