"""Lightning's Trainer as a recipe asks for it, without the parts that the zoo does itself."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lightning
import torch.distributed
from lightning.fabric.plugins.environments import (
    LSFEnvironment,
    MPIEnvironment,
    SLURMEnvironment,
    TorchElasticEnvironment,
)
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.training.checkpoint import AtomicCheckpointIO

MEETING = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
"""Environment variables by which nodes find each other where no cluster manager tells them."""

_MANAGERS = (TorchElasticEnvironment, SLURMEnvironment, LSFEnvironment, MPIEnvironment)

_LIGHTNINGS = ("lightning", "lightning.pytorch", "lightning.fabric")
"""Loggers that write to standard error if nobody else had a handler when Lightning was imported."""


def make_trainer(recipe: Recipe, callbacks: Sequence[lightning.Callback]) -> lightning.Trainer:
    """A Trainer that runs ``trainer.max_steps`` batches; validation, checkpoints and metrics are the callbacks' work.

    Raises:
        UserError: a strategy or devices that this machine or version doesn't have, nodes that can't meet.
    """
    check_nodes(recipe)
    arguments = {name: value for name, value in recipe.trainer.items() if name not in ("strategy", "max_steps")}
    strategy = make_strategy(recipe)
    try:
        return lightning.Trainer(
            **arguments,
            strategy=strategy,
            max_steps=recipe.trainer["max_steps"],
            max_epochs=-1,
            callbacks=[*callbacks],
            logger=False,
            plugins=[AtomicCheckpointIO()],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            check_val_every_n_epoch=None,
            val_check_interval=recipe.trainer["max_steps"] + 1,
        )
    except (MisconfigurationException, ValueError, TypeError, RuntimeError, ImportError) as error:
        raise UserError(
            f"Lightning refuses the trainer section: {error}",
            where=recipe.where("trainer"),
            fix="change trainer.accelerator, devices, precision or strategy",
        ) from error


def check_nodes(recipe: Recipe) -> None:
    """Refuse several nodes where nothing says how they meet; Lightning would wait for the others, and say nothing.

    Raises:
        UserError: names the environment variables that are missing.
    """
    nodes = recipe.trainer["num_nodes"]
    if nodes < 2 or any(manager.detect() for manager in _MANAGERS):
        return
    if missing := [name for name in MEETING if name not in os.environ]:
        raise UserError(
            f"{nodes} nodes are to meet, and the environment doesn't say where: it lacks {', '.join(missing)}",
            where=recipe.where("trainer.num_nodes"),
            fix="start it by torchrun or Slurm, or on each node with the first one's MASTER_ADDR, a free MASTER_PORT "
            f"there, and NODE_RANK from 0 to {nodes - 1}; or set trainer.num_nodes=1",
        )


def awaited(trainer: lightning.Trainer) -> str | None:
    """What a run of several nodes waits for before it begins, as a line for the first process of each."""
    environment = getattr(trainer.strategy, "cluster_environment", None)
    if trainer.num_nodes < 2 or environment is None or environment.local_rank():
        return None
    place = f"{environment.main_address}:{environment.main_port}"
    return f"node {environment.node_rank()} of {trainer.num_nodes} (from 0): waiting for the others at {place}"


def make_strategy(recipe: Recipe) -> Strategy | str:
    """The strategy of a recipe.

    Raises:
        UserError: one that isn't there yet.
    """
    chosen: dict[str, Any] = recipe.trainer["strategy"]
    name = chosen["name"]
    if name == "auto":
        return "auto"
    if name == "ddp":
        return DDPStrategy(broadcast_buffers=False)  # buffers are the same everywhere from the start
    if name == "fsdp2" and chosen.get("tensor", 1) == 1:
        devices = recipe.trainer["devices"]
        data = chosen.get("data", devices if isinstance(devices, int) and devices > 0 else torch.cuda.device_count())
        data *= 1 if "data" in chosen else recipe.trainer["num_nodes"]
        return ModelParallelStrategy(
            data_parallel_size=max(1, data), tensor_parallel_size=1, save_distributed_checkpoint=False
        )
    raise UserError(
        f"strategy {name} with tensor parallelism isn't there yet"
        if name == "fsdp2"
        else f"strategy {name} isn't there yet",
        where=recipe.where("trainer.strategy"),
        fix="use auto, ddp or fsdp2",
    )


def check_loggers(recipe: Recipe) -> None:
    """Refuse a logger whose package isn't installed.

    Raises:
        UserError: says how to install it.
    """
    if "tensorboard" in recipe.loggers and find_spec("tensorboard") is None:
        raise UserError(
            "logger: [tensorboard] needs the package tensorboard",
            where=recipe.where("logger"),
            fix="pip install transformer-zoo[tensorboard]",
        )


def make_loggers(recipe: Recipe, run: Path) -> list[Logger]:
    """Lightning's loggers that the recipe asks for, beside metrics.csv."""
    return [TensorBoardLogger(run, name="", version="tensorboard")] if "tensorboard" in recipe.loggers else []


class RunLog(logging.Handler):
    """log.txt: holds back what is logged until the run begins, so that a run that never does leaves no file."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[logging.LogRecord] = []
        self._file: logging.FileHandler | None = None

    def begin(self, path: Path) -> None:
        """Write what was held back to the end of a file, and all that follows."""
        self._file = logging.FileHandler(path, encoding="utf-8")
        self._file.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        while self._waiting:
            self._file.emit(self._waiting.pop(0))

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record."""
        if self._file is None:
            self._waiting.append(record)
        else:
            self._file.emit(record)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        super().close()


@contextlib.contextmanager
def contained(recipe: Recipe, log: RunLog) -> Iterator[None]:
    """Keep what Lightning changes in the process inside the block.

    Its remarks go to the log instead of standard error, and so do the zoo's own. Environment variables that it
    sets for the other ranks are taken back, and its process group ends, so that a second run can follow.
    """
    before = dict(os.environ)
    os.environ.update(recipe.registry.environment())
    with _logged(log), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning\..*")
        try:
            yield
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            os.environ.clear()
            os.environ.update(before)


@contextlib.contextmanager
def _logged(log: RunLog) -> Iterator[None]:
    zoo = logging.getLogger("zoo")
    level = zoo.level
    zoo.setLevel(logging.INFO)
    zoo.addHandler(log)
    kept = {name: logging.getLogger(name).handlers[:] for name in _LIGHTNINGS}
    for name in _LIGHTNINGS:
        logging.getLogger(name).handlers[:] = [log] if name == "lightning" else []
    try:
        yield
    finally:
        zoo.setLevel(level)
        zoo.removeHandler(log)
        for name, handlers in kept.items():
            logging.getLogger(name).handlers[:] = handlers
        log.close()
