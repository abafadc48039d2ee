"""Checkpoints: written whole or not at all, the newest few kept, the best one under its own name."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from zoo.errors import RunFailed, UserError
from zoo.training.files import link_or_copy, replacing

BEST = "best.ckpt"
KEY = "zoo"
"""Key of a checkpoint under which the zoo keeps the recipe and its own counters."""

_NAME = re.compile(r"step-(\d+)\.ckpt")


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target, flushes to the disk, renames.

    Lightning's own writes to the system's temporary folder and moves from there, which isn't atomic across file
    systems.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint.

        Raises:
            RunFailed: the disk is full or the folder can't be written to.
        """
        del storage_options
        with replacing(Path(path)) as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # what torch makes of an OSError
                raise RunFailed(f"can't write {path}: {error.__context__ or error}") from error


class Checkpoints:
    """The checkpoints of a run.

    Args:
        folder: made when the first one is written.
        keep: how many of the newest stay.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self.keep = folder, keep

    def steps(self) -> list[int]:
        """Steps of the checkpoints on disk, newest first."""
        found = [_NAME.fullmatch(path.name) for path in self.folder.glob("step-*.ckpt")]
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def path(self, step: int) -> Path:
        """The file of a step."""
        return self.folder / f"step-{step}.ckpt"

    def save(self, trainer: lightning.Trainer, step: int, *, best: bool) -> None:
        """Write a checkpoint of this moment, on all ranks together.

        Args:
            trainer: Lightning's.
            step: optimizer steps done.
            best: whether it is the best so far.

        Raises:
            RunFailed: the disk is full.
        """
        if trainer.is_global_zero:
            self.folder.mkdir(exist_ok=True)
        trainer.save_checkpoint(self.path(step), weights_only=False)
        if not trainer.is_global_zero:
            return
        if best:
            link_or_copy(self.path(step), self.folder / BEST)
        for old in self.steps()[self.keep :]:
            self.path(old).unlink()

    def newest(self) -> tuple[Path, list[str]] | None:
        """The newest checkpoint that can be read, and a line for each newer one that can't; ``None`` if there is none.

        Raises:
            UserError: there are some, and none can be read.
        """
        damaged = []
        for step in self.steps():
            try:
                read_checkpoint(self.path(step))
            except UserError as error:
                damaged.append(error.what)
            else:
                return self.path(step), damaged
        if damaged:
            raise UserError(
                f"no checkpoint can be read: {'; '.join(damaged)}",
                where=str(self.folder),
                fix="start a new run",
            )
        return None


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint's plain values and tensors, on the CPU; code in it is refused.

    Raises:
        UserError: a file that isn't there, is damaged, holds code, or is none of the zoo's.
    """
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch.load raises whatever the damage leads to
        held = isinstance(error, pickle.UnpicklingError)
        reason = "it holds objects, which are never loaded, or is damaged" if held else str(error).split("\n")[0]
        raise UserError(f"checkpoint {path.name} can't be read: {reason}", where=str(path)) from error
    if KEY not in checkpoint:
        raise UserError(f"checkpoint {path.name} wasn't written by the zoo", where=str(path))
    return checkpoint


def model_state(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The model's own weights among those of the training module."""
    return {name.removeprefix("model."): value for name, value in state.items() if name.startswith("model.")}


def in_model_order(state: dict[str, Any], optimizer: torch.optim.Optimizer, module: torch.nn.Module) -> dict[str, Any]:
    """An optimizer's state with parameters numbered as the module lists them.

    torch numbers them group by group. Lightning's FSDP2 strategy takes the numbers for the module's own order, so
    that a checkpoint of one process, whose optimizer has two groups, would reach the wrong parameters there.
    """
    order = {id(parameter): number for number, parameter in enumerate(module.parameters())}
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    written = [number for group in state["param_groups"] for number in group["params"]]
    new = {old: order[id(parameter)] for old, parameter in zip(written, held, strict=True)}
    groups = [{**group, "params": [new[number] for number in group["params"]]} for group in state["param_groups"]]
    return {"state": {new[number]: values for number, values in state["state"].items()}, "param_groups": groups}
