"""Faulty executors, and the check of the kit that catches each."""

from __future__ import annotations

import dataclasses
import os
import subprocess

from zoo.contracts.executor import Crew, Executor, Work


class Processes(Crew):
    """Processes on this machine."""

    def __init__(self, work: Work, commands: list[list[str]], environment: dict[str, str]) -> None:
        super().__init__(work)
        options = {"stderr": subprocess.DEVNULL, "process_group": 0}
        self.processes = [
            subprocess.Popen(command, env={**os.environ, **environment}, **options)  # type: ignore[call-overload]
            for command in commands
        ]

    def running(self) -> int:
        return sum(process.poll() is None for process in self.processes)


class Sound(Executor):
    """What the others derive from is right."""

    def start(self, work: Work) -> Crew:
        return Processes(work, [work.worker()], dict(work.environment))


class LeavesTheLast(Sound):
    def start(self, work: Work) -> Crew:
        return Processes(work, [work.worker(0, len(work.cells) - 1)], dict(work.environment))


class StartsIdleOnes(Sound):
    def start(self, work: Work) -> Crew:
        return Processes(work, [work.worker()] * (self.config.workers or 1), dict(work.environment))


class BareEnvironment(Sound):
    def start(self, work: Work) -> Crew:
        return Processes(work, [work.worker()], {})


class OwnEnvironment(Sound):
    def start(self, work: Work) -> Crew:
        os.environ.update(work.environment)
        return Processes(work, [work.worker()], {})


class Waits(Sound):
    def start(self, work: Work) -> Crew:
        crew = Processes(work, [work.worker()], dict(work.environment))
        crew.processes[0].wait()
        return crew


class Deaf(Sound):
    def start(self, work: Work) -> Crew:
        return DeafProcesses(work, [work.worker()], dict(work.environment))


class DeafProcesses(Processes):
    def stop(self) -> None:
        pass


class KillsAtOnce(Sound):
    def start(self, work: Work) -> Crew:
        return KilledProcesses(work, [work.worker()], dict(work.environment))


class KilledProcesses(Processes):
    def stop(self) -> None:
        for process in self.processes:
            process.kill()


class RaisesForTheDead(Sound):
    def start(self, work: Work) -> Crew:
        return StrictProcesses(work, [work.worker()], dict(work.environment))


class StrictProcesses(Processes):
    def running(self) -> int:
        for process in self.processes:
            if process.poll():
                raise subprocess.CalledProcessError(process.returncode, process.args)
        return super().running()


class TakesNone(Sound):
    @dataclasses.dataclass(kw_only=True)
    class Config(Executor.Config):
        """Any number of workers."""

        def __post_init__(self) -> None:
            pass


class SecretKnob(Sound):
    @dataclasses.dataclass(kw_only=True)
    class Config(Executor.Config):
        """A knob that nobody explains."""

        queue: str = ""


CAUGHT: list[tuple[type[Executor], str]] = [
    (LeavesTheLast, "every cell is run"),
    (StartsIdleOnes, "no more workers than cells"),
    (BareEnvironment, "the environment reaches the workers and changes nothing here"),
    (OwnEnvironment, "the environment reaches the workers and changes nothing here"),
    (Waits, "start returns at once"),
    (Deaf, "stop reaches every worker"),
    (KillsAtOnce, "stop reaches every worker"),
    (RaisesForTheDead, "a worker that dies is no error"),
    (TakesNone, "refuses a number of workers below 1"),
    (SecretKnob, "every knob has a type, a default and a docstring"),
]
"""Faulty executor and the check that catches it."""
