"""A callback that writes the norm of every parameter to ``weight_norms.csv`` in the run folder."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.distributed.tensor import DTensor

HEADER = ("step", "parameter", "norm")


class WeightNorms(Callback):
    """Rows ``step, parameter, norm``: the 2-norm of each parameter after every so many optimizer steps.

    Args:
        every: optimizer steps from one record to the next.
    """

    def __init__(self, every: int) -> None:
        self.every = every

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the file; a resumed run keeps its rows up to the step that it resumes from."""
        if not trainer.is_global_zero:
            return
        file = _file(trainer)
        kept = _rows(file, trainer.global_step) if file.exists() else []
        _write(file, [HEADER, *kept], mode="w")

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *batch: Any) -> None:
        """Append the rows of a step whose turn it is."""
        step = trainer.global_step
        if step % self.every:
            return
        rows = [(step, name, f"{_norm(parameter):.6g}") for name, parameter in pl_module.named_parameters()]
        if trainer.is_global_zero:
            _write(_file(trainer), rows, mode="a")


def _file(trainer: Trainer) -> Path:
    return Path(trainer.default_root_dir) / "weight_norms.csv"


@torch.no_grad()
def _norm(parameter: Tensor) -> float:
    """The norm of a whole parameter, also where each device holds a piece; every device must ask."""
    norm = parameter.float().norm()
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


def _rows(file: Path, last_step: int) -> list[list[str]]:
    with file.open(newline="") as stream:
        return [row for row in list(csv.reader(stream))[1:] if int(row[0]) <= last_step]


def _write(file: Path, rows: list[Any], mode: str) -> None:
    with file.open(mode, newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
