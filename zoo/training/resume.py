"""Whether and from where a run can go on."""

from __future__ import annotations

import logging
from pathlib import Path

from zoo.errors import UserError
from zoo.recipe import Change, Recipe, load_recipe
from zoo.recipe.node import Origin
from zoo.recipe.source import read_text
from zoo.training.checkpoint import KEY, Checkpoints, read_checkpoint
from zoo.training.job import Job
from zoo.training.run import RunFolder

logger = logging.getLogger(__name__)

FREE = (
    "trainer.max_steps",
    "trainer.accelerator",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.strategy",
    "trainer.profiler",
    "trainer.detect_anomaly",
    "training.micro_batch_size",
    "training.workers",
    "training.compile",
    "training.validate_every",
    "training.validate_batches",
    "training.save_every",
    "training.log_every",
    "training.keep",
    "logger",
    "plugins",
)
"""What may differ between a run and its continuation: where it runs, how long, and what is written when."""

_SHOWN = 5


def find_start(job: Job, folder: RunFolder) -> Path | None:
    """The newest checkpoint of a run that a job may continue; ``None`` if it had written none yet.

    Raises:
        UserError: no run there, a recipe, source or data that differ, a run that is at its last step, no checkpoint
            that can be read.
    """
    if not folder.recipe.is_file() or not folder.lock.is_file():
        raise UserError(
            "there is no run to resume",
            where=str(folder.path),
            fix="give the folder of a run, or leave out --resume",
        )
    found = Checkpoints(folder.checkpoints, job.recipe.training.keep).newest()
    path, damaged = found or (None, [])
    saved = read_checkpoint(path)[KEY] if path else None
    if path and saved:  # its recipe made the weights; the folder's may have been edited since
        old = _recipe_of(path, saved["recipe"], job.recipe)
    else:
        old = load_recipe(folder.recipe, registry=job.recipe.registry)
    _check_changes(old.diff(job.recipe), job.recipe)
    _check_data(job, folder)
    _check_components(job.recipe, folder)
    for line in damaged:
        logger.warning("%s; taking an older one", line)
    if saved:
        _check_steps(job.recipe, int(saved["step"]), folder)
    else:
        logger.warning("no checkpoint yet: starting at step 0")
    return path


def _recipe_of(path: Path, text: str, new: Recipe) -> Recipe:
    """The recipe that a checkpoint carries, with the components that the new one finds: plugins may have moved."""
    tree = read_text(text, lambda line, written: Origin("recipe", path, line, written)).plain()
    return Recipe.from_dict({**tree, "plugins": new.tree["plugins"]}, registry=new.registry, name=path.stem)


def _check_changes(changes: list[Change], recipe: Recipe) -> None:
    refused = [change for change in changes if not _is_free(change)]
    if refused:
        listed = "; ".join(f"{path}: {old} -> {new}" for path, old, new in refused[:_SHOWN])
        more = f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        raise UserError(
            f"the recipe isn't the one that the run began with: {listed}{more}",
            where=recipe.where(refused[0].path),
            fix="take the changes back, or start a new run; "
            f"only these may change, and max_steps only grow: {', '.join(FREE)}",
        )
    for path, old, new in changes:
        logger.info("resumed with %s: %s -> %s", path, old, new)


def _is_free(change: Change) -> bool:
    if change.path == "trainer.max_steps":
        return bool(change.new > change.old)
    return any(change.path == free or change.path.startswith(f"{free}.") for free in FREE)


def _check_data(job: Job, folder: RunFolder) -> None:
    before, now = folder.locked()["data"]["sha256"], job.data.fingerprint()
    if before != now:
        raise UserError(
            f"the data isn't what the run began with: its hash was {before[:12]}, now it is {now[:12]}",
            where=str(folder.lock),
            fix="restore the data, or start a new run",
        )


def _check_components(recipe: Recipe, folder: RunFolder) -> None:
    """Refuse a plugin file that was edited; a package that was upgraded may go on, with a warning."""
    outside = {component.key for component in recipe.components() if component.version is None}
    changed = folder.changed_components(recipe)
    if edited := [key for key in changed if key in outside]:
        raise UserError(
            f"the source of {', '.join(edited)} has changed since the run began",
            where=str(folder.lock),
            fix="restore it, or start a new run",
        )
    for key in changed:
        logger.warning("the source of %s has changed since the run began", key)


def _check_steps(recipe: Recipe, step: int, folder: RunFolder) -> None:
    if step >= recipe.trainer["max_steps"]:
        raise UserError(
            f"the run is already at max_steps={recipe.trainer['max_steps']}; nothing is left to do",
            where=str(folder.path),
            fix="to train on, give a larger trainer.max_steps",
        )
