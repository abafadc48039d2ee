"""Measure the model of a run on a part of its data, or of other data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.builder import SIZES
from zoo.contracts.data import Split
from zoo.errors import UserError
from zoo.training.decoded import Decoding, check_decoding, text_scores
from zoo.training.job import Job, build_job_for
from zoo.training.module import TrainingModule
from zoo.training.run import load_run
from zoo.training.trainer import RunLog, contained, make_trainer

PREFIX: dict[Split, str] = {"train": "train", "validation": "val", "test": "test"}
"""What the names of metrics begin with."""


def evaluate(
    run: str | Path,
    overrides: Sequence[str] = (),
    split: Split = "validation",
    *,
    beams: int | None = None,
    length_penalty: float = 1.0,
) -> dict[str, Any]:
    """Metrics of a run's newest weights over a whole part.

    Args:
        run: a run folder.
        overrides: changes to its recipe, ``key.path=value``: other data, more devices, fewer batches.
        split: ``validation``, ``test`` or ``train``.
        beams: have an encoder-decoder write all targets, for ``bleu`` and ``chrf`` among the metrics: by a search with
            this many beams, or greedily with 1. ``None`` leaves them out.
        length_penalty: of the search.

    Returns:
        ``run``, ``status``, ``steps``, ``split`` and ``metrics``.

    Raises:
        UserError: no such run or part, data that doesn't fit the model, a model that decodes nothing.
    """
    if split not in PREFIX:
        raise UserError(f"there is no part {split!r}", where="--split", fix=f"choose one of {', '.join(PREFIX)}")
    loaded = load_run(run, tuple(overrides))
    with contained(loaded.recipe, RunLog()):
        job = build_job_for(loaded)
        _check_sizes(job)
        if beams is not None:
            check_decoding(job)
        if not job.data.size(split):
            raise UserError(f"the {split} part is empty", where=loaded.recipe.where("data"))
        chosen = loaded.recipe.origin("training.validate_batches").kind == "override"
        batches = loaded.recipe.training.validate_batches if chosen else None
        module = TrainingModule(job, split, batches=batches)
        trainer = make_trainer(loaded.recipe, [])
        trainer.validate(module, verbose=False)
        if not trainer.is_global_zero:
            raise SystemExit(0)
        measured = dict(module.validated)
        if beams is not None:  # by a model of its own: the other may lie in parts on several devices
            writer = job._replace(model=load_run(run, tuple(overrides)).model)
            device = trainer.strategy.root_device
            decoding = Decoding(beams=beams, length_penalty=length_penalty)
            measured |= text_scores(writer, split, decoding, device=device, batches=batches)
    metrics = {f"{PREFIX[split]}_{name}": value for name, value in measured.items()}
    return {
        "run": str(loaded.path),
        "status": "completed",
        "steps": loaded.step,
        "split": split,
        "metrics": metrics,
    }


def _check_sizes(job: Job) -> None:
    description = job.task.describe()
    for name in SIZES:
        has, needs = getattr(job.model.config, name, None), getattr(description, name)
        if has is not None and needs is not None and (needs != has if isinstance(needs, tuple) else needs > has):
            raise UserError(
                f"the data needs {name} {needs}, the run's model has {has}",
                where=job.recipe.where("data"),
                fix="measure it on data like its own",
            )
