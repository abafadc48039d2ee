"""The one LightningModule: a training step is an optimizer step, its loss a sum over all ranks and micro-batches."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import lightning
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ParallelStrategy
from torch import Tensor
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils.data import DataLoader

from zoo.builder import build_optimizer, build_schedule
from zoo.contracts.data import Split
from zoo.contracts.task import Batch
from zoo.errors import Diverged
from zoo.training.gradients import Gradient, clip_factor
from zoo.training.job import Job
from zoo.training.loader import Batches, StepBatch, Steps, make_loader
from zoo.training.plan import BatchPlan
from zoo.training.ranks import Ranks
from zoo.training.signals import Signals


class StepResult(NamedTuple):
    """What one optimizer step did, over all ranks."""

    step: int
    """Number of the step, counted from 1."""
    sums: dict[str, float]
    """The task's sums."""
    norm: float
    """2-norm of the gradient before clipping."""
    lr: float
    """Largest learning rate of the parameter groups."""
    tokens: int
    """Tokens of the step."""
    signal: int
    """Signal that any rank has received, or 0."""


class TrainingModule(lightning.LightningModule):
    """Trains and evaluates any model on any task.

    One Lightning batch is one optimizer step (manual optimization): every counter of Lightning's counts steps,
    and no checkpoint can fall between two micro-batches. The targets of all ranks are counted before the first
    backward pass; each micro-batch's summed loss is divided by that number, times the ranks that a
    data-parallel strategy is going to average over.

    Args:
        job: what to train.
        split: the part that ``validation_step`` measures.
        batches: how many batches of it; ``None`` is all.
    """

    def __init__(self, job: Job, split: Split = "validation", *, batches: int | None = None) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.job, self.split, self.batches = job, split, batches
        self.model, self.task, self.settings = job.model, job.task, job.recipe.training
        self.schedule = build_schedule(job.recipe)
        self.signals = Signals()
        self.result: StepResult | None = None
        self.validated: dict[str, float] = {}
        self._sums: Tensor | None = None

    # What Lightning asks for -------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        """Shard the blocks and then the root over the data-parallel mesh of FSDP2."""
        if self.device_mesh is None or isinstance(self.model, FSDPModule):
            return
        mesh = self.device_mesh["data_parallel"]
        for block in self.model.block_modules():
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)

    def setup(self, stage: str) -> None:
        """Learn which rank this is; the process group is there now."""
        del stage
        self.ranks = Ranks(self.trainer.strategy)
        if self.ranks.device.type == "cpu":
            # Lightning has torch look for a GPU through NVML; every optimizer step does, at 0.5 ms where there is none
            os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "0"
        if self.settings.compile:
            self.model.compile()  # in place, so that names of parameters stay as they are

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The recipe's optimizer; ``training_step`` sets its learning rate, a pure function of the step."""
        optimizer = build_optimizer(self.job.recipe).over(self.model)
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        self._gradient = Gradient(self.model.parameters())
        return optimizer

    def train_dataloader(self) -> DataLoader[StepBatch]:
        """This rank's rows of every step from the current one on."""
        steps = Steps(lambda: self.trainer.global_step, self.trainer.max_steps)
        return self._loader("train", self._plan("train").step, steps)

    def val_dataloader(self) -> DataLoader[StepBatch]:
        """This rank's rows of one pass over the part that is measured."""
        plan = self._plan(self.split)
        count = plan.batches() if self.batches is None else min(self.batches, plan.batches())
        return self._loader(self.split, plan.once, Steps(lambda: 0, count))

    def _plan(self, split: Split) -> BatchPlan:
        return BatchPlan(
            seed=self.job.recipe.seed,
            size=self.job.data.size(split),
            batch_size=self.job.data.config.batch_size,
            rank=self.ranks.rank,
            world=self.ranks.world,
            lengths=self.job.data.lengths(split),
        )

    def _loader(self, split: Split, draw: Any, steps: Steps) -> DataLoader[StepBatch]:
        batches = Batches(self.job.data, self.task, split, draw)
        return make_loader(batches, steps, self.settings.workers, self.device)

    # One optimizer step ------------------------------------------------------------------------------------------

    def training_step(self, batch: StepBatch, index: int) -> None:
        """One optimizer step over this rank's rows; leaves a ``StepResult``.

        Raises:
            Diverged: the loss or the gradient's norm isn't finite; the weights are as before the step.
        """
        del index
        step = self.trainer.global_step
        seed_step(self.job.recipe.seed, step, self.ranks.rank, self.device)
        counts = self.ranks.total(self.ranks.numbers([batch.targets, batch.tokens, *self.signals.flags()]))
        names, sums = self._backward(batch.rows, counts[0].clamp(min=1) / self.ranks.world)
        norm = self._norm()
        factor = (
            torch.ones_like(norm) if self.settings.clip_norm is None else clip_factor(norm, self.settings.clip_norm)
        )
        facts = torch.stack([norm, factor]).to(sums)
        values = torch.cat([facts, counts.to(sums), self.ranks.total(sums)]).tolist()  # the one wait for the device
        norm_value, factor_value, _, tokens, interrupts, terminations, *rest = values
        totals = dict(zip(names, rest, strict=True))
        self._refuse_nonfinite(step + 1, totals["loss"], norm_value)
        lr = self._step_optimizer(step, factor_value)
        received = self.signals.number(interrupts, terminations)
        self.result = StepResult(step + 1, totals, norm_value, lr, int(tokens), received)

    def _backward(self, rows: Batch, divisor: Tensor) -> tuple[list[str], Tensor]:
        """Gradients of all micro-batches, and the task's sums over them."""
        pieces = list(self._micro_batches(rows))
        names: list[str] = []
        total: Tensor | None = None
        for number, piece in enumerate(pieces, start=1):
            with self._gradient_sync(number == len(pieces)):
                loss = self.task.loss(self.model, piece)
                self.manual_backward(loss.total / divisor.to(loss.total.dtype))
            names = list(loss.sums)
            sums = self.ranks.scalars(loss.sums.values())
            total = sums if total is None else total + sums
        assert total is not None
        return names, total

    def _micro_batches(self, rows: Batch) -> Iterator[Batch]:
        size = len(next(iter(rows.values())))
        micro = self.settings.micro_batch_size or size
        for begin in range(0, size, micro):
            yield {key: value[begin : begin + micro] for key, value in rows.items()} if micro < size else rows

    def _gradient_sync(self, last: bool) -> AbstractContextManager[Any]:
        """Gradients travel between ranks once a step, with the last micro-batch."""
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(last)
        strategy = self.trainer.strategy
        return nullcontext() if last or not isinstance(strategy, ParallelStrategy) else strategy.block_backward_sync()

    def _norm(self) -> Tensor:
        norm = self._gradient.norm()
        return norm if self._scaler is None else norm / self._scaler.get_scale()

    @property
    def _scaler(self) -> torch.amp.GradScaler | None:
        """Keeps float16 gradients in range; it skips a step whose gradient overflowed, by itself."""
        return getattr(self.trainer.precision_plugin, "scaler", None)

    def _refuse_nonfinite(self, step: int, loss: float, norm: float) -> None:
        if not math.isfinite(loss):
            raise Diverged(step, f"loss is {loss}")
        if not math.isfinite(norm) and self._scaler is None:
            raise Diverged(step, f"gradient norm is {norm}")

    def _step_optimizer(self, step: int, clip: float) -> float:
        """Clip, set the learning rates, step; gives the largest of them."""
        if clip < 1:
            self._gradient.scale(clip)
        optimizer = self.optimizers()
        assert isinstance(optimizer, LightningOptimizer)
        factor = self.schedule.factor(step)
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
        optimizer.step()
        optimizer.zero_grad()
        return max(group["lr"] for group in optimizer.param_groups)

    # Measuring ---------------------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        """Forget the last pass."""
        self._names: list[str] = []
        self._sums = None

    def validation_step(self, batch: StepBatch, index: int) -> None:
        """Add up the task's sums."""
        del index
        for piece in self._micro_batches(batch.rows):
            sums = self.task.loss(self.model, piece).sums
            self._names, vector = list(sums), self.ranks.scalars(sums.values())
            self._sums = vector if self._sums is None else self._sums + vector

    def on_validation_epoch_end(self) -> None:
        """Metrics over all ranks, every sample counted once.

        Raises:
            RunFailed: no target in the part.
        """
        assert self._sums is not None
        values = self.ranks.total(self._sums).tolist()
        self.validated = self.task.summary(dict(zip(self._names, values, strict=True)))
        for name, value in self.validated.items():
            self.log(f"val_{name}", value, logger=False)  # for callbacks of plugins, early stopping for instance


def seed_step(seed: int, step: int, rank: int, device: torch.device) -> None:
    """Seed torch's generators, so that dropout is a function of (seed, step, rank) and no state need be saved.

    ``torch.manual_seed`` would take 200 us to reach every backend.
    """
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "big") >> 1
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index or 0].manual_seed(number)
