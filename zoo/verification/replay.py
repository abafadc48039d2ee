"""A run once more, from its lock: is what it left behind what its recipe, code and data give?"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lightning

from zoo.errors import Diverged, Interrupted, UserError
from zoo.recipe import Recipe, load_recipe
from zoo.recipe.training import RUNS
from zoo.registry import Registry
from zoo.training.checkpoint import KEY, Checkpoints, read_checkpoint
from zoo.training.job import prepare_task
from zoo.training.metrics import Row
from zoo.training.run import RunFolder
from zoo.training.train import train
from zoo.verification.difference import lock_changes, outcome, read_result
from zoo.verification.rows import RowsDifference, compare_rows, read_rows
from zoo.verification.weights import Weights, WeightsDifference, compare_weights, newest_weights

_RESUMED = re.compile(r" INFO resumed with (.+)$", re.MULTILINE)


class Drift(NamedTuple):
    """Something that a run was made with and that is another now."""

    what: str
    """``package torch``, ``source of attention/multi_head``, ``data``, ``recipe``."""
    then: str
    """Version or hash in the lock."""
    now: str
    """Version or hash today."""

    def __str__(self) -> str:
        return f"{self.what}: {self.then} -> {self.now}"


def replay(
    run: str | Path, to: str | Path | None = None, *, anyway: bool = False, stop_at_first: bool = False
) -> dict[str, Any]:
    """Train a run's recipe again, into a new folder, and hold what it gives against what the run left behind.

    A run that was stopped is replayed up to its newest weights; one that was stopped and resumed, as if it never
    had been, which is what resuming promises.

    Args:
        run: a run folder.
        to: an empty or new folder; by default runs/RUN-replay, with a number behind it where that is taken.
        anyway: train although versions, sources or data aren't those of the lock.
        stop_at_first: end the replay at the first row that differs, in place of the last step.

    Returns:
        ``run``, ``replay``, ``status`` (``bit-equal`` or ``differs``), ``drift``, ``rows``, ``weights``, ``lock``
        (values that differ between the two locks), ``notes``, ``sentence``.

    Raises:
        UserError: no run, nothing to compare with, or something that has drifted, each named.
        Interrupted, RunFailed: the replay came to a bad end.
    """
    old = _opened(run)
    recipe = load_recipe(old.recipe)
    rows, weights = read_rows(old.metrics), newest_weights(old)
    if not rows:
        raise UserError("the run has no row of metrics to compare with", where=str(old.metrics), fix="replay another")
    drift = list(find_drift(old, recipe))
    if drift and not anyway:
        lines = "".join(f"\n  {each}" for each in drift)
        raise UserError(
            f"what the run was made with has changed since:{lines}",
            where=str(old.lock),
            fix="restore what changed, or replay anyway: --anyway",
        )
    watch = Watch(rows, _last_step(old, recipe, rows, weights), stop_at_first=stop_at_first)
    folder = Path(to) if to is not None else _free(RUNS / f"{old.path.name}-replay")
    ended = _train(dataclasses.replace(recipe, registry=_Watched(recipe.registry, watch)), folder, watch)
    return _document(old, RunFolder(folder), rows, weights, drift, ended)


def _opened(run: str | Path) -> RunFolder:
    folder = RunFolder(Path(run))
    if not folder.recipe.is_file() or not folder.lock.is_file():
        raise UserError(f"{run} is no run folder: it has no recipe.yaml and recipe.lock.yaml", fix="give a run folder")
    return folder


def _free(path: Path) -> Path:
    """The path, or the first with a number behind it that isn't there."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


# What has changed since


def find_drift(folder: RunFolder, recipe: Recipe) -> Iterator[Drift]:
    """What a run's lock says and this machine doesn't: packages, sources, recipe, weights to start from, data."""
    then, now = folder.locked(), recipe.lock()
    for name, version in then["packages"].items():
        found = now["packages"].get(name)
        if found != version:
            yield Drift(f"package {name}", version or "none", found or "none")
    for key, record in then["components"].items():
        other = now["components"].get(key)
        if other is None:
            yield Drift(f"source of {key}", _short(record["sha256"]), "not in recipe.yaml")
        elif record["sha256"] != other["sha256"]:
            yield Drift(f"source of {key}", _short(record["sha256"]), _short(other["sha256"]))
    yield from _edited(folder)
    if origin := then.get("weights"):
        yield from _drifted_weights(origin)
    data = prepare_task(recipe).data.fingerprint()
    if data != then["data"]["sha256"]:
        yield Drift("data", _short(then["data"]["sha256"]), _short(data))


def _edited(folder: RunFolder) -> Iterator[Drift]:
    """A recipe.yaml that isn't what the newest checkpoint was made with, byte for byte."""
    found = Checkpoints(folder.checkpoints, keep=0).newest()
    if found:
        made = str(read_checkpoint(found[0])[KEY]["recipe"]).encode()
        if made != (text := folder.recipe.read_bytes()):
            yield Drift("recipe.yaml", _short(_hash(made)), _short(_hash(text)))


def _drifted_weights(origin: dict[str, str]) -> Iterator[Drift]:
    file = Path(origin["path"])
    found = _hash(file.read_bytes()) if file.is_file() else None
    if found != origin["sha256"]:
        yield Drift(f"weights {file}", _short(origin["sha256"]), _short(found))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "none"


# The training


class Watch(lightning.Callback):
    """Ends a replay at the run's last step, or at the first row that differs.

    It does so by the signal that stops any run: the step is done, its row written, and its state saved, as when the
    run itself was stopped there.

    Args:
        rows: of the run.
        last: the step to stop at; ``None`` for the recipe's last.
        stop_at_first: whether to look at each row.

    Attributes:
        stopped: whether it has asked for the end.
    """

    def __init__(self, rows: Sequence[Row], last: int | None, *, stop_at_first: bool) -> None:
        self.rows, self.last, self.stop_at_first = rows, last, stop_at_first
        self.file: Path | None = None
        self.stopped = False

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Learn where the replay's rows are."""
        del pl_module, stage
        self.file = RunFolder(Path(trainer.default_root_dir)).metrics if trainer.is_global_zero else None

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Ask for the end after this step if it is the last one, or if a row before it differs."""
        del pl_module, batch, batch_idx
        if self.file is None or self.stopped or threading.current_thread() is not threading.main_thread():
            return
        is_last = trainer.global_step + 1 == self.last
        if is_last or (self.stop_at_first and compare_rows(self.rows, read_rows(self.file)).step is not None):
            self.stopped = True
            signal.raise_signal(signal.SIGTERM)


class _Watched(Registry):
    """A registry like another, through which every run gets one more callback."""

    def __init__(self, other: Registry, callback: lightning.Callback) -> None:
        vars(self).update(vars(other))
        self._callback = callback

    @property
    def hook(self) -> Any:
        """The hooks of all plugins, and the callback among those of a run."""
        return _Relay(super().hook, self._callback)


class _Relay:
    def __init__(self, relay: Any, callback: lightning.Callback) -> None:
        self._relay, self._callback = relay, callback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._relay, name)

    def zoo_callbacks(self, recipe: Recipe) -> list[Sequence[lightning.Callback]]:
        return [*self._relay.zoo_callbacks(recipe=recipe), [self._callback]]


def _last_step(folder: RunFolder, recipe: Recipe, rows: Sequence[Row], weights: Weights | None) -> int | None:
    """The step that a replay needs no step beyond; ``None`` where that is the recipe's last, or divergence."""
    last = weights.step if weights else int(rows[-1]["step"])
    return None if _is_diverged(folder) or last >= recipe.trainer["max_steps"] else last


def _is_diverged(folder: RunFolder) -> bool:
    return read_result(folder.result).get("status") == "diverged"


def _train(recipe: Recipe, folder: Path, watch: Watch) -> str:
    """Train; how it ended."""
    try:
        train(recipe, run=folder)
    except Diverged as error:
        return str(error)
    except Interrupted:
        if not watch.stopped:
            raise
        return "stopped"
    return "completed"


# What came of it


def _document(
    old: RunFolder, new: RunFolder, rows: Sequence[Row], weights: Weights | None, drift: Sequence[Drift], ended: str
) -> dict[str, Any]:
    difference, newest = compare_rows(rows, read_rows(new.metrics)), newest_weights(new)
    tensors = compare_weights(weights, newest) if weights and newest else None
    is_equal = difference.step is None and difference.shared > 0 and _is_diverged(old) == ended.startswith("diverged")
    if weights is not None:
        is_equal = is_equal and tensors is not None and tensors.steps[0] == tensors.steps[1] and not tensors.differing
    return {
        "run": str(old.path),
        "replay": str(new.path),
        "status": "bit-equal" if is_equal else "differs",
        "drift": [each._asdict() for each in drift],
        "rows": difference.json(),
        "weights": tensors and tensors.json(),
        "lock": lock_changes(old.locked(), new.locked()),
        "notes": list(_notes(old, ended)),
        "sentence": _sentence(difference, tensors, is_equal),
    }


def _notes(old: RunFolder, ended: str) -> Iterator[str]:
    """What else a reader must know."""
    text = old.log.read_text(encoding="utf-8", errors="replace") if old.log.is_file() else ""
    if changes := _RESUMED.findall(text):
        yield (
            f"the run was resumed with {'; '.join(dict.fromkeys(changes))}; the replay had the last values "
            "from its first step on"
        )
    if _is_diverged(old) != ended.startswith("diverged"):
        yield "the run diverged, the replay didn't" if _is_diverged(old) else f"the replay {ended}, the run didn't"


def _sentence(rows: RowsDifference, weights: WeightsDifference | None, is_equal: bool) -> str:
    if not is_equal:
        return f"differs: {outcome(rows, weights)}"
    held = "no weights were left" if weights is None else f"{weights.tensors:,} tensors of step {weights.steps[0]:,}"
    return f"bit-equal: {rows.shared:,} {'row' if rows.shared == 1 else 'rows'} of metrics and {held}"
