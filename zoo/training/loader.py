"""Batches for Lightning: one of its batches is one optimizer step's rows of one rank."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from zoo.contracts.data import Data, Draw, Split
from zoo.contracts.task import Task
from zoo.training.plan import EMPTY


class StepBatch(NamedTuple):
    """The rows of a batch, and what must be known of them before the forward pass."""

    rows: dict[str, Tensor]
    """What the task asks for, every tensor batch first."""
    targets: int
    """Targets in these rows."""
    tokens: int
    """Tokens in these rows, or rows where there are no tokens."""


class Batches(Dataset[StepBatch]):
    """The batches of a plan by index.

    Args:
        data: prepared.
        task: counts the targets.
        split: the part that is read.
        draw: the rows of a batch by its index, for example ``BatchPlan.step``.
    """

    def __init__(self, data: Data, task: Task, split: Split, draw: Callable[[int], Draw]) -> None:
        self.data, self.task, self.split, self.draw = data, task, split, draw

    def __getitem__(self, index: int) -> StepBatch:
        draw = self.draw(index)
        rows = self.task.prepare(self.data.batch(draw, self.split), draw, self.split)
        return StepBatch(rows, self.task.count(rows), _tokens(rows, draw))


def _tokens(rows: dict[str, Tensor], draw: Draw) -> int:
    real = int((draw.samples != EMPTY).sum())
    if "valid" in rows:
        return int(rows["valid"].sum())
    return real * rows["ids"].shape[1] if "ids" in rows else real


class Steps(Sampler[int]):
    """Indices from ``first()`` to ``stop - 1``; asked for once an epoch, after a checkpoint was restored."""

    def __init__(self, first: Callable[[], int], stop: int) -> None:
        self.first, self.stop = first, stop

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first(), self.stop))

    def __len__(self) -> int:
        return self.stop  # Lightning's counters start where a checkpoint left them, so the whole length is right


def make_loader(batches: Batches, steps: Steps, workers: int, device: torch.device) -> DataLoader[StepBatch]:
    """A loader that yields the batches in order."""
    return DataLoader(
        batches,
        batch_size=None,
        sampler=steps,
        num_workers=workers,
        collate_fn=_as_is,  # type: ignore[arg-type]
        worker_init_fn=_leave_signals_to_the_trainer,
        pin_memory=device.type == "cuda",
        persistent_workers=workers > 0,
    )


def _as_is(batch: StepBatch) -> StepBatch:
    return batch


def _leave_signals_to_the_trainer(worker: int) -> None:
    """Ctrl-C reaches a whole process group; the training process stops its workers when it has saved its state."""
    del worker
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
