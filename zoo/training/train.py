"""One training job: a recipe in, a run folder out."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning
import torch

from zoo.builder import build_optimizer, build_schedule, build_weights, check_parts
from zoo.contracts.attention import HeadedAttention
from zoo.errors import Diverged, Interrupted, RunFailed, UserError
from zoo.recipe import Recipe
from zoo.training.bookkeeper import Bookkeeper
from zoo.training.files import write_json
from zoo.training.job import Job, build_job
from zoo.training.module import TrainingModule
from zoo.training.resume import find_start
from zoo.training.run import RunFolder, claim_run
from zoo.training.start import start_from
from zoo.training.trainer import (
    RunLog,
    awaited,
    check_loggers,
    check_nodes,
    contained,
    make_strategy,
    make_trainer,
)

logger = logging.getLogger(__name__)


def train(recipe: Recipe, run: str | Path | None = None, resume: bool = False) -> dict[str, Any]:
    """Train a model and leave it in a run folder.

    On several devices of one machine, Lightning starts this program again for each further one; there this
    function doesn't return but ends the process.

    Args:
        recipe: what to train.
        run: an empty or new folder; by default runs/RECIPE-N. With ``resume``, the run to continue.
        resume: go on from the newest checkpoint in ``run``, as if the run had never stopped.

    Returns:
        ``run``, ``steps``, ``split`` and what result.json holds: ``status``, ``metrics``, ``parameters``, ``tokens``,
        ``wall_s``, ``seed``, ``best``.

    Raises:
        UserError: bad input; nothing was written.
        Diverged, Interrupted, RunFailed: as they say; result.json is written.
    """
    if resume and run is None:
        raise UserError("resume needs to know the run", where="--resume", fix="give its folder: --run DIR")
    _check(recipe, resume)
    log = RunLog()
    with contained(recipe, log):
        began = RunFolder(Path(run)) if resume and run is not None else None
        job = build_job(recipe, began if "weights" in recipe.tree else None)
        start = None if began is None else find_start(job, began)
        job, lines = _with_weights(job, began if start else None)
        bookkeeper = Bookkeeper(job, log)
        trainer = make_trainer(recipe, [bookkeeper, *_plugin_callbacks(recipe)])
        _refuse_kernels(job, trainer)
        if trainer.is_global_zero:
            print(*lines, sep="\n", end="\n" * bool(lines), file=sys.stderr, flush=True)
        if line := awaited(trainer):
            print(line, file=sys.stderr, flush=True)
        if not trainer.is_global_zero:
            _follow(job, trainer, start)
        with _opened(recipe, run, resume) as folder:
            bookkeeper.folder = folder
            return _lead(job, trainer, bookkeeper, start)


def _check(recipe: Recipe, resume: bool) -> None:
    """Find out what can't work before any data is touched."""
    check_parts(recipe)
    if not resume:  # a run that goes on has weights of its own
        build_weights(recipe)
    build_optimizer(recipe)
    build_schedule(recipe)
    check_loggers(recipe)
    check_nodes(recipe)
    make_strategy(recipe)


def _with_weights(job: Job, continued: RunFolder | None) -> tuple[Job, list[str]]:
    """The job with the weights that its recipe starts from, and what to say of them.

    A run that goes on from a checkpoint doesn't load them again; their hash stays in its lock file.
    """
    if continued is not None:
        return job._replace(origin=continued.locked().get("weights")), []
    weights = build_weights(job.recipe)
    if weights is None:
        return job, []
    origin, lines = start_from(weights, job.model, job.recipe)
    for line in lines:
        logger.info(line)
    return job._replace(origin=origin), lines


def _refuse_kernels(job: Job, trainer: lightning.Trainer) -> None:
    """Refuse an attention whose kernel has no gradients where the run is to train.

    Raises:
        UserError: names the module.
    """
    for name, module in job.model.named_modules():
        on_cpu = trainer.strategy.root_device.type == "cpu"
        if on_cpu and isinstance(module, HeadedAttention) and module.config.kernel == "flex":
            raise UserError(
                f"{name}: the flex kernel has no backward pass on a CPU",
                where=job.recipe.where("architecture.attention"),
                fix="leave kernel at auto or set it to sdpa, or train on a GPU",
            )


def _plugin_callbacks(recipe: Recipe) -> list[lightning.Callback]:
    return [callback for offer in recipe.registry.hook.zoo_callbacks(recipe=recipe) for callback in offer]


@contextmanager
def _opened(recipe: Recipe, run: str | Path | None, resume: bool) -> Iterator[RunFolder]:
    """The run's folder, held against other processes; one in which training never began is empty again."""
    if resume:
        assert run is not None
        folder = RunFolder(Path(run))
        folder.hold()
    else:
        folder = claim_run(recipe, None if run is None else Path(run))
    try:
        yield folder
    finally:
        folder.release()


def _follow(job: Job, trainer: lightning.Trainer, start: Path | None) -> None:
    """Train on a further rank, and end the process.

    The first rank reports what went wrong. A further one that ended with an error would make Lightning kill it.
    """
    try:
        _fit(job, trainer, start)
    except RunFailed:
        raise SystemExit(0) from None
    raise SystemExit(0)


def _lead(job: Job, trainer: lightning.Trainer, bookkeeper: Bookkeeper, start: Path | None) -> dict[str, Any]:
    """Train on the first rank and write the result, however it ends."""
    assert bookkeeper.folder is not None
    try:
        _fit(job, trainer, start)
    except BaseException as error:
        if bookkeeper.begun:
            _write_result(job, bookkeeper, _status(error), trainer.global_step)
        elif not start:
            bookkeeper.folder.remove_if_empty()
        raise
    return _write_result(job, bookkeeper, "completed", trainer.global_step)


def _fit(job: Job, trainer: lightning.Trainer, start: Path | None) -> None:
    try:
        module = TrainingModule(job, batches=job.recipe.training.validate_batches)
        trainer.fit(module, ckpt_path=start, weights_only=True)
    except torch.OutOfMemoryError as error:
        micro = job.recipe.training.micro_batch_size or job.data.config.batch_size
        raise RunFailed(f"out of memory; lower training.micro_batch_size (it is {micro} rows): {error}") from error
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # before training began; Lightning makes an exit of it
            raise KeyboardInterrupt from None
        raise


def _status(error: BaseException) -> str:
    if isinstance(error, Diverged):
        return "diverged"
    return "interrupted" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed"


def _write_result(job: Job, bookkeeper: Bookkeeper, status: str, steps: int) -> dict[str, Any]:
    assert bookkeeper.folder is not None
    state = bookkeeper.state
    row = {**state.measured, **state.row}
    result = {
        "status": status,
        "steps": steps,
        "split": "validation",
        "metrics": {name: value for name, value in row.items() if name.startswith(("train_", "val_"))},
        "best": state.best or None,
        "parameters": sum(parameter.numel() for parameter in job.model.parameters()),
        "tokens": state.tokens,
        "wall_s": state.wall_s,
        "seed": job.recipe.seed,
    }
    write_json(bookkeeper.folder.result, result)
    return {"run": str(bookkeeper.folder.path), **result}
