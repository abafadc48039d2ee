"""Where a grid stands, out of the files of its folder alone: the same for who runs it and for who looks on."""

from __future__ import annotations

import csv
import io
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from zoo.comparison.folder import ENDED, CompareFolder
from zoo.comparison.index import Record
from zoo.comparison.plans import Job, Plan, settled
from zoo.training.metrics import Row

_TAIL = 4096
_Kind = tuple[str, str]


class Running(NamedTuple):
    """A cell that some worker has."""

    job: Job
    step: int
    """Steps done, as far as metrics.csv says."""
    steps: int
    """Steps of the run."""
    loss: float | None
    """Of the newest step that was logged."""
    seconds: float
    """Since the worker took it."""


class Board:
    """A grid and what has become of its cells.

    Args:
        folder: the comparison's.
        plan: the cells.
        since: place in the index; what failed before it is to be tried again. ``None`` is its end.

    Attributes:
        jobs: by address.
        waiting: addresses of cells that need a start or are being run, in the order of the plan.
        counts: cells in each status of those that have one.
        failures: titles and reasons of cells that failed, the last one last.
        known: records of what had ended before, by address.
    """

    def __init__(self, folder: CompareFolder, plan: Plan, since: int | None = None) -> None:
        self.folder, self.plan = folder, plan
        self.index = folder.read_index()
        self.since = self.index.place if since is None else since
        self.jobs = {job.address: job for job in plan.jobs}
        self.counts: Counter[str] = Counter()
        self.failures: dict[str, str] = {}
        self._statuses: dict[str, str] = {}
        self._took: dict[_Kind, list[float]] = defaultdict(list)
        entries, there = self.index.entries, folder.runs()
        known = [address for address in self.jobs if address in there and self._is_settled(address)]
        self._lost = [a for a in self.jobs if a not in there and a in entries and entries[a].status in ENDED]
        self.known = {record.address: record for record in self.index.records(known)}
        self.waiting = dict.fromkeys(address for address in self.jobs if address not in self.known)
        self._left = Counter(self._kind(address) for address in self.waiting)
        for record in self.known.values():
            self._note(record)

    def forget_lost(self) -> None:
        """Tell the index of runs that somebody has taken away, so that workers make them again."""
        for address in self._lost:
            self.index.append(Record(address=address, status="planned"))

    def _is_settled(self, address: str) -> bool:
        return settled(self.jobs[address], self.index.entries.get(address), self.since)

    def _kind(self, address: str) -> _Kind:
        job = self.jobs[address]
        return job.variant, job.task

    def look(self) -> list[Record]:
        """Take in what has ended since the last look; the newest record of each cell that it is about."""
        new = [address for address in dict.fromkeys(self.index.read()) if address in self.jobs]
        records = [record for record in self.index.records(new) if record.status != "planned"]
        for record in records:
            self._note(record)
            if record.address in self.waiting and self._is_settled(record.address):
                del self.waiting[record.address]
                self._left[self._kind(record.address)] -= 1
        return records

    def _note(self, record: Record) -> None:
        address = record.address
        if old := self._statuses.get(address):
            self.counts[old] -= 1
        self._statuses[address] = record.status
        self.counts[record.status] += 1
        self.failures.pop(address, None)
        if record.status in ("failed", "invalid"):
            self.failures[address] = record.reason
        elif record.status == "completed":
            took = max(record.seconds, float(record.result.get("wall_s") or 0.0))
            self._took[self._kind(address)].append(took)

    def running(self) -> list[Running]:
        """What workers do now, the cell that was taken first first."""
        now = time.time()
        held = [(facts["since"], name) for name, facts in self.folder.claims.held() if name in self.jobs]
        return [self._running(self.jobs[name], now - since) for since, name in sorted(held)]

    def _running(self, job: Job, seconds: float) -> Running:
        row = newest_row(self.folder.run(job.address).metrics)
        steps = self.plan.recipes[job.recipe].steps
        return Running(job, int(row.get("step", 0)), steps, row.get("train_loss"), seconds)

    def seconds_left(self, running: Sequence[Running]) -> float | None:
        """About how long it will take, by what finished cells of the same variant and task took.

        Cells of another variant on the same task stand in where there are none, then any others; ``None`` before the
        first cell has finished.
        """
        typical = {kind: statistics.fmean(took) for kind, took in self._took.items()}
        if not typical:
            return None
        by_task: dict[str, list[float]] = defaultdict(list)
        for (_, task), seconds in typical.items():
            by_task[task].append(seconds)
        any_task = statistics.fmean(typical.values())

        def expected(kind: _Kind) -> float:
            return typical.get(kind) or statistics.fmean(by_task.get(kind[1]) or [any_task])

        total = sum(count * expected(kind) for kind, count in self._left.items() if count)
        total -= sum(expected((one.job.variant, one.job.task)) * one.step / max(1, one.steps) for one in running)
        return max(0.0, total) / max(1, len(running))


def newest_plan(folder: CompareFolder) -> Plan | None:
    """The plan of whoever began last to run the grid of a folder."""
    plans = sorted(folder.plans.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    return Plan.read(plans[-1]) if plans else None


def newest_row(metrics: Path) -> Row:
    """The last whole row of a metrics.csv, read from its end; empty where there is none."""
    try:
        with metrics.open("rb") as file:
            header = file.readline().decode()
            begin = file.tell()
            file.seek(max(begin, file.seek(0, io.SEEK_END) - _TAIL))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return {}
    lines = text[: text.rfind("\n") + 1].splitlines()
    return next(_rows(header, lines[-1:]), {})


def _rows(header: str, lines: Sequence[str]) -> Iterator[Row]:
    for row in csv.DictReader([header, *lines]):
        yield {key: float(value) for key, value in row.items() if value}
