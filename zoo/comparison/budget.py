"""A time budget: how many steps a variant can train on a task in some seconds, on this machine, now.

Each variant and task is timed once, by real steps with the cell's threads, and trains for as many steps as its speed
allows, so that its schedule ends where its training does. Another machine, or the same one on a busier day, gives
other steps: a time budget is outside all promises that results repeat. What was measured is kept in budget.json, so
that a comparison that goes on, or is made larger, keeps its steps.

Only training is timed: a cell takes longer by its validations and checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning
import torch

from zoo.comparison.cells import Cell
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.training.files import write_json
from zoo.training.job import build_job
from zoo.training.module import TrainingModule
from zoo.training.trainer import RunLog, contained, make_trainer

FILE = "budget.json"
WARM_UP = 3
"""Steps that aren't timed: whatever happens for the first time happens in them."""
LEAST_STEPS, MOST_STEPS, SECONDS = 5, 200, 3.0
"""Timed steps: at least so many, then until so many have been made or so much time is over."""
LONG = 1_000_000
"""Steps of the run that is timed, which ends long before."""
NO_MATTER = ("plugins", "logger", "seed")
"""Keys of a recipe that change no speed."""


def calibrate(
    cells: Sequence[Cell], folder: Path | None, seconds: float, say: Callable[[str], None] | None = None
) -> dict[tuple[str, str], int]:
    """Steps of each variant on each task that fit into some seconds of training; each pair is timed by its first cell.

    A pair that can't be timed, since it diverges at once or ends in an error, has no number of steps: it keeps its
    recipe's, and its cells say what is wrong with it.

    Args:
        cells: those without a recipe are passed over.
        folder: of the comparison, with what was measured before; ``None`` keeps nothing.
        seconds: of training.
        say: told a line for each pair.

    Raises:
        UserError: a recipe that trains on several devices.
    """
    say = say or (lambda line: None)
    speeds = _Speeds(folder / FILE if folder else None, seconds)
    steps: dict[tuple[str, str], int] = {}
    seen: set[tuple[str, str]] = set()
    for cell in cells:
        place = (cell.variant, cell.task)
        if place in seen or cell.base is None:
            continue
        seen.add(place)
        key = _key(cell.base, cell.threads)
        before = ", measured before" if key in speeds.known else ""
        try:
            rate = speeds.known[key]["steps_per_s"] if before else speed(cell.base, cell.threads)
        except UserError:
            raise
        except Exception as error:  # whatever a plugin raises; the cell's own run keeps it
            say(f"{cell.variant} on {cell.task}: can't be timed, so it keeps its steps: {error}")
            continue
        steps[place] = max(1, int(seconds * rate))
        speeds.keep(key, cell, rate, steps[place])
        say(f"{cell.variant} on {cell.task}: {rate:.3g} steps/s{before}, {steps[place]:,} steps in {seconds:g} s")
    return steps


class _Speeds:
    """What budget.json holds; written with each pair, so that an interruption loses none."""

    def __init__(self, file: Path | None, seconds: float) -> None:
        self.file, self.seconds = file, seconds
        self.known: dict[str, dict[str, Any]] = {}
        if file and file.is_file():
            self.known = {each["key"]: each for each in json.loads(file.read_text(encoding="utf-8"))["speeds"]}

    def keep(self, key: str, cell: Cell, rate: float, steps: int) -> None:
        """Note a pair's speed."""
        place = {"variant": cell.variant, "task": cell.task, "threads": cell.threads}
        found = {"key": key, **place, "steps_per_s": rate, "max_steps": steps}
        if self.known.get(key) != found:
            self.known[key] = found
            if self.file:
                write_json(self.file, {"seconds": self.seconds, "speeds": [*self.known.values()]})


def speed(recipe: Recipe, threads: int) -> float:
    """Optimizer steps a second, by training for some seconds in this process; nothing is written.

    Raises:
        UserError: several devices.
        Exception: as training, before the timing was over.
    """
    before, watch = torch.get_num_threads(), _Stopwatch()
    long = recipe.with_overrides(f"trainer.max_steps={LONG}")  # its own steps are going to be replaced
    torch.set_num_threads(threads)
    try:
        with contained(long, RunLog()):
            trainer = make_trainer(long, [watch])
            if trainer.world_size > 1:
                raise UserError(
                    f"a time budget is for runs on one device, this one has {trainer.world_size}",
                    where=recipe.where("trainer.devices"),
                    fix="set trainer.devices=1, or compare at equal steps",
                )
            trainer.fit(TrainingModule(build_job(long)))
    except _OverError:
        pass
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # Lightning makes an exit of it
            raise KeyboardInterrupt from None
        raise
    finally:
        torch.set_num_threads(before)
    return watch.rate()


def _key(recipe: Recipe, threads: int) -> str:
    """A short hash of what a speed depends on: the recipe without its steps, the source of its parts, the threads."""
    values = {key: value for key, value in recipe.tree.items() if key not in NO_MATTER}
    values["trainer"] = {key: value for key, value in recipe.trainer.items() if key != "max_steps"}
    sources = {key: record["sha256"] or record for key, record in recipe.lock()["components"].items()}
    text = json.dumps([values, sources, threads], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _OverError(Exception):
    """The timing is over."""


class _Stopwatch(lightning.Callback):
    """Takes the time at the end of each step, until there is enough."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Look at the clock.

        Raises:
            _OverError: there is enough.
        """
        del trainer, outputs, batch, batch_idx
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        self._times.append(time.perf_counter())
        timed = len(self._times) - WARM_UP
        if timed >= MOST_STEPS or (timed >= LEAST_STEPS and self._passed() >= SECONDS):
            raise _OverError

    def _passed(self) -> float:
        return self._times[-1] - self._times[WARM_UP - 1]

    def rate(self) -> float:
        """Steps a second behind the warm-up."""
        return (len(self._times) - WARM_UP) / self._passed()
