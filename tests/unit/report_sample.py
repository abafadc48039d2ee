"""Folders of comparisons that nobody has run: made-up numbers in the files that a report is made from."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import math
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

LOCK = {
    "packages": {"python": "3.11.7", "torch": "2.14.1"},
    "data": {"sha256": "d" * 64},
    "seed": 1,
}


@dataclasses.dataclass
class Sample:
    """What a folder is to hold; the first variant is the baseline.

    Attributes:
        variants, tasks, seeds: the grid.
        planned: seeds that haven't been run.
        failed: reasons by variant; such a variant has completed no seed.
        margin, noise: of every verdict.
        tune: grid of the learning rate; empty where nothing is tuned.
        slices: numbers of the metric ``val_accuracy_pairs_N``.
        steps: rows of each metrics.csv.
        has_runs: whether there are folders of runs.
    """

    variants: Sequence[str] = ("plain", "deep", "wide")
    tasks: Sequence[str] = ("text", "copying")
    seeds: Sequence[int] = (1, 2, 3)
    planned: Sequence[int] = ()
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    margin: float | None = 0.02
    noise: float | None = 0.011
    tune: Sequence[float] = ()
    slices: Sequence[int] = ()
    steps: int = 20
    has_runs: bool = True
    metric: str = "val_loss"
    better: str = "lower"

    def write(self, folder: Path) -> Path:
        """The folder, with all its files."""
        (folder / "cells").mkdir(parents=True)
        cells = [
            cell
            for variant in self.variants
            for task in self.tasks
            for cell in [
                *(self._tuning(variant, task, lr) for lr in self.tune),
                *(self._cell(folder, variant, task, seed) for seed in self.seeds),
            ]
        ]
        verdicts = [self._verdict(cells, task, variant) for task in self.tasks for variant in self.variants[1:]]
        document = {"folder": str(folder), "cells": cells, "verdicts": verdicts}
        (folder / "results.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
        comparison = {
            "recipe": "recipes/compare/parts.yaml",
            "variants": {name: {"architecture.attention": name} for name in self.variants},
            "tasks": [*self.tasks],
            "seeds": [*self.seeds],
            "baseline": self.variants[0],
            "tune": {"optimizer.lr": [*self.tune]} if self.tune else {},
            "threads": 1,
        }
        (folder / "comparison.yaml").write_text(yaml.safe_dump(comparison, sort_keys=False), encoding="utf-8")
        return folder

    def _cell(self, folder: Path, variant: str, task: str, seed: int) -> dict[str, Any]:
        cell = {"variant": variant, "task": task, "seed": seed, "reason": None, "metrics": {}, "costs": {}, "run": None}
        if seed in self.planned:
            return {**cell, "status": "planned"}
        address = hashlib.sha256(f"{variant}/{task}/{seed}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
        cell["run"] = f"/elsewhere/cells/{address}"
        if self.tune:
            cell |= {"phase": "report", "point": {"optimizer.lr": self.tune[0]}}
        if variant in self.failed:
            return {**cell, "status": "failed", "reason": self.failed[variant]}
        draw = random.Random(address)
        level = 2 - 0.1 * self.variants.index(variant) + draw.gauss(0, 0.05)
        metrics = {self.metric: level, "val_accuracy": 1 / level}
        metrics |= {f"val_accuracy_pairs_{number}": math.exp(-number * level / 40) for number in self.slices}
        if self.has_runs:
            self._run(folder / "cells" / address[:2] / address, variant, level)
        rank = self.variants.index(variant)
        costs = {
            "parameters": 1000 * (1 + rank),
            "wall_s": 2.5,
            "macs": 5000 + rank,
            "train_tokens_per_s": 900.5,
            "peak_bytes": 2**20,
            "energy_gpu_j": None,
        }
        return {**cell, "status": "completed", "metrics": metrics, "costs": costs}

    def _tuning(self, variant: str, task: str, lr: float) -> dict[str, Any]:
        return {
            "variant": variant,
            "task": task,
            "seed": 99,
            "phase": "tune",
            "point": {"optimizer.lr": lr},
            "status": "completed",
            "reason": None,
            "metrics": {self.metric.replace("test_", "val_"): 3 + lr},
            "costs": {},
            "run": None,
        }

    def _run(self, run: Path, variant: str, level: float) -> None:
        run.mkdir(parents=True)
        (run / "result.json").write_text(json.dumps({"status": "completed"}))
        recipe = {"seed": 1, "architecture": {"attention": {"name": variant, "heads": 2}, "dim": 8}}
        (run / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
        component = {"provider": "transformer-zoo", "version": "0.1.0", "sha256": "c" * 64}
        lock = {**LOCK, "components": {"task/causal_lm": component}}
        (run / "recipe.lock.yaml").write_text(yaml.safe_dump(lock), encoding="utf-8")
        with (run / "metrics.csv").open("w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(["step", "tokens", "wall_s", "train_loss", self.metric.replace("test_", "val_")])
            for row in range(1, self.steps + 1):
                loss = level + math.exp(-5 * row / self.steps)
                writer.writerow([10 * row, 100 * row, 0.1 * row, loss, loss if row % 2 == 0 else ""])

    def _verdict(self, cells: Sequence[dict[str, Any]], task: str, variant: str) -> dict[str, Any]:
        values = {
            name: {cell["seed"]: cell["metrics"][self.metric] for cell in cells if _is_measured(cell, task, name)}
            for name in (variant, self.variants[0])
        }
        seeds = [seed for seed in values[variant] if seed in values[self.variants[0]]]
        differences = [values[variant][seed] - values[self.variants[0]][seed] for seed in seeds]
        mean = statistics.fmean(differences) if differences else None
        half = 4.303 * statistics.stdev(differences) / math.sqrt(len(seeds)) if len(seeds) > 1 else None
        low, high = (mean - half, mean + half) if mean is not None and half is not None else (None, None)
        is_decided = low is not None and high is not None and not low <= 0 <= high
        return {
            "task": task,
            "variant": variant,
            "baseline": self.variants[0],
            "metric": self.metric,
            "difference": mean,
            "low": low,
            "high": high,
            "p": 0.0123456789 if half else None,
            "p_adjusted": 0.0246913578 if half else None,
            "confidence": 0.95,
            "margin": self.margin,
            "noise": self.noise,
            "detectable": self.noise and 3 * self.noise,
            "better": self.better,
            "seeds": len(seeds),
            "seeds_needed": None if is_decided else 7,
            "minutes_needed": None if is_decided else 41.3,
            "verdict": ("better" if mean and mean < 0 else "worse") if is_decided else "undecided",
            "note": "" if is_decided else "undecided: 7 more seeds, about 41 minutes",
        }


def _is_measured(cell: dict[str, Any], task: str, variant: str) -> bool:
    place = cell["task"], cell["variant"]
    return place == (task, variant) and cell["status"] == "completed" and cell.get("phase") != "tune"
