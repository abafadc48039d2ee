"""What happens between two optimizer steps: a row of metrics, validation, a checkpoint, and stopping."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from pathlib import Path
from typing import Any

import lightning

from zoo.errors import Interrupted
from zoo.training.checkpoint import KEY, Checkpoints, in_model_order, model_state
from zoo.training.job import Job
from zoo.training.metrics import MetricsFile, Row, columns
from zoo.training.module import StepResult, TrainingModule
from zoo.training.progress import Progress, duration
from zoo.training.run import RunFolder
from zoo.training.trainer import RunLog, make_loggers
from zoo.training.weights import save_weights

logger = logging.getLogger(__name__)


@dataclasses.dataclass
class State:
    """Counters of a run that a checkpoint carries; plain values only."""

    tokens: int = 0
    """Tokens seen in all steps."""
    wall_s: float = 0.0
    """Seconds of training and validating."""
    row: Row = dataclasses.field(default_factory=dict)
    """Metrics of the newest step."""
    measured: Row = dataclasses.field(default_factory=dict)
    """Step and metrics of the newest validation."""
    best: Row = dataclasses.field(default_factory=dict)
    """Step and metrics of the best validation so far, by the task's first metric."""


class Bookkeeper(lightning.Callback):
    """Does for a run what Lightning's logger, checkpoint and signal handling can't do exactly.

    Validation is started from here and not by Lightning's interval, so that a checkpoint is always taken at the
    same point, after it; a run that was stopped before a validation that was due makes up for it on resuming.

    Args:
        job: what is trained.
        log: opened in the run folder when training begins.

    Attributes:
        folder: the run's, set on the first rank before training; ``None`` on the others.
        begun: whether training has begun, and with it the writing of files.
    """

    def __init__(self, job: Job, log: RunLog) -> None:
        self.job, self.run_log = job, log
        self.folder: RunFolder | None = None
        self.settings, self.steps = job.recipe.training, job.recipe.trainer["max_steps"]
        self.metric, self.better = next(iter(job.task.metrics.items()))
        self.has_validation = job.data.size("validation") > 0
        self.state = State()
        self.progress = Progress(self.steps, enabled=False)
        self.begun = False
        self._started = 0.0
        self._file: MetricsFile | None = None
        self._checkpoints: Checkpoints | None = None

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Tell all ranks where the run is, however they were started."""
        del pl_module, stage
        path = trainer.strategy.broadcast(self.folder.path if self.folder else None)
        assert path is not None
        trainer._default_root_dir = str(path)  # type: ignore[attr-defined]  # callbacks of plugins write there
        self._checkpoints = Checkpoints(Path(path) / "checkpoints", self.settings.keep)
        self.progress = Progress(self.steps, enabled=trainer.is_global_zero)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Take over the signals, open the files, make up for a validation that a stop prevented."""
        module = _ours(pl_module)
        module.signals.install()
        with contextlib.suppress(AttributeError):  # Lightning's own word of a signal, a wait for the device each step
            trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
        step = trainer.global_step
        self._started = time.monotonic() - self.state.wall_s
        if self.folder is not None:
            self._open(self.folder, trainer)
        if step and self._is_validation_due(step):
            self._conclude(trainer, module, step)
        elif step and self._is_row_due(step):
            self._write_row(trainer)

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Close a step.

        Raises:
            Interrupted: a signal came; the state is saved.
        """
        del outputs, batch, batch_idx
        module = _ours(pl_module)
        result = module.result
        assert result is not None
        self._count(result)
        if result.signal and result.step < self.steps:
            self._describe(result, module)
            self._write_row(trainer)
            self._save(trainer, result.step, best=False)
            raise Interrupted(result.signal, result.step)
        if self._is_validation_due(result.step) or self._is_row_due(result.step) or self._is_save_due(result.step):
            self._describe(result, module)
            self._conclude(trainer, module, result.step)

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Write the weights of the last step, which sharded ranks put together.

        Where the end came early, by ``trainer.max_time`` or a plugin's callback, this step is saved first, so that
        the run can go on from it.
        """
        if 0 < trainer.global_step < self.steps:
            self._write_row(trainer)
            self._save(trainer, trainer.global_step, best=False)
        state = trainer.strategy.lightning_module_state_dict()
        if self.folder is not None:
            facts = {"recipe": self.job.recipe.name, "step": str(trainer.global_step)}
            save_weights(self.folder.weights, model_state(state), facts)
        self._close(_ours(pl_module))

    def on_exception(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, exception: BaseException
    ) -> None:
        """Close what is open."""
        del trainer, exception
        self._close(_ours(pl_module))

    def on_save_checkpoint(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Put the recipe and the counters in."""
        if trainer.is_global_zero:
            pairs = zip(checkpoint["optimizer_states"], trainer.optimizers, strict=True)
            checkpoint["optimizer_states"] = [in_model_order(state, made, pl_module) for state, made in pairs]
        state = dataclasses.asdict(self.state)
        checkpoint[KEY] = {"recipe": self.job.recipe.to_yaml(), "step": trainer.global_step, **state}

    def on_load_checkpoint(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Take the counters out."""
        del trainer, pl_module
        saved = checkpoint[KEY]
        self.state = State(**{field.name: saved[field.name] for field in dataclasses.fields(State)})

    def _open(self, folder: RunFolder, trainer: lightning.Trainer) -> None:
        self.begun = True
        folder.begin(self.job)
        self.run_log.begin(folder.log)
        self._file = MetricsFile(folder.metrics, columns(self.job.task.measured()), before=trainer.global_step)
        trainer.loggers = make_loggers(self.job.recipe, folder.path)
        if not self.has_validation:
            logger.info("no validation: the validation part is empty")

    def _count(self, result: StepResult) -> None:
        self.state.tokens += result.tokens
        self.progress.update(result.step, self.state.tokens, result.sums["loss"] / max(1.0, result.sums["targets"]))

    def _describe(self, result: StepResult, module: TrainingModule) -> None:
        """The step's metrics, as the beginning of a row."""
        state = self.state
        state.wall_s = time.monotonic() - self._started
        state.row = {"step": result.step, "tokens": state.tokens, "wall_s": state.wall_s}
        state.row |= {"lr": result.lr, "grad_norm": result.norm}
        if result.sums["targets"]:
            state.row |= {f"train_{name}": value for name, value in module.task.summary(result.sums).items()}

    def _conclude(self, trainer: lightning.Trainer, module: TrainingModule, step: int) -> None:
        """Validate, write the row and save, each if it is due."""
        best = self._is_validation_due(step) and self._validate(trainer, module, step)
        if self._is_row_due(step):
            self._write_row(trainer)
        if best or self._is_save_due(step):
            self._save(trainer, step, best=best)

    def _is_validation_due(self, step: int) -> bool:
        due = step % self.settings.validate_every == 0 or step == self.steps
        return due and self.has_validation and self.state.measured.get("step") != step

    def _is_row_due(self, step: int) -> bool:
        return step % self.settings.log_every == 0 or self.state.measured.get("step") == step or step == self.steps

    def _is_save_due(self, step: int) -> bool:
        return step % self.settings.save_every == 0 or step == self.steps

    def _validate(self, trainer: lightning.Trainer, module: TrainingModule, step: int) -> bool:
        """Measure the validation part; whether it is the best so far."""
        _run_validation(trainer)
        state = self.state
        state.wall_s = state.row["wall_s"] = time.monotonic() - self._started
        metrics = {f"val_{name}": value for name, value in module.validated.items()}
        state.measured = {"step": step, **metrics}
        state.row |= metrics
        self._say(step)
        if self._is_best(metrics[f"val_{self.metric}"]):
            state.best = state.measured
            return True
        return False

    def _is_best(self, value: float) -> bool:
        best = self.state.best.get(f"val_{self.metric}")
        return best is None or (value < best if self.better == "lower" else value > best)

    def _say(self, step: int) -> None:
        row, slices = self.state.row, tuple(f"_{name}" for name in self.job.data.slices())
        shown = "  ".join(
            f"{name} {value:.4f}"
            for name, value in row.items()
            if name == "train_loss" or (name[:4] == "val_" and not name.endswith(slices))
        )
        text = f"step {step:,}/{self.steps:,}  {shown}  {duration(row['wall_s'])}"
        logger.info(text)
        self.progress.note(text)

    def _write_row(self, trainer: lightning.Trainer) -> None:
        if self._file is not None:
            self._file.write(self.state.row)
        for other in trainer.loggers:
            other.log_metrics(
                {k: v for k, v in self.state.row.items() if k != "step"}, step=int(self.state.row["step"])
            )

    def _save(self, trainer: lightning.Trainer, step: int, *, best: bool) -> None:
        assert self._checkpoints is not None
        self._checkpoints.save(trainer, step, best=best)

    def _close(self, module: TrainingModule) -> None:
        module.signals.restore()  # before Lightning gives back what it found, so not in the hook ``teardown``
        self.progress.close()
        if self._file is not None:
            self._file.close()
            self._file = None


def _run_validation(trainer: lightning.Trainer) -> None:
    """What Lightning does after a training batch at which its own validation interval ends."""
    connector, loop = trainer._logger_connector, trainer.fit_loop.epoch_loop.val_loop
    first = connector._first_loop_iter
    loop.restarting = False  # a resumed run begins this pass anew
    trainer.validating = True
    loop.run()
    trainer.training = True
    connector._first_loop_iter = first


def _ours(module: lightning.LightningModule) -> TrainingModule:
    assert isinstance(module, TrainingModule)
    return module
