"""A model small enough to train in a second, and what tests ask of its runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from zoo.recipe import Recipe, load_recipe
from zoo.training.metrics import Row, read_metrics

HERE = Path(__file__).parent
RECIPE = f"""
plugins: [{HERE / "patchy.py"}]
seed: 3
data: {{name: patchy, batch_size: 8}}
architecture: {{name: gpt2, layers: 2, dim: 16, heads: 2}}
task: causal_lm
optimizer: {{name: adamw, lr: 1e-2}}
schedule: {{name: cosine, warmup_steps: 4}}
training: {{clip_norm: 0.5, validate_every: 4, save_every: 4, keep: 10, log_every: 1}}
trainer: {{max_steps: 20, accelerator: cpu, devices: 1}}
"""


def write_recipe(folder: Path) -> Path:
    """The recipe's file."""
    path = folder / "small.yaml"
    path.write_text(RECIPE)
    return path


def small_recipe(folder: Path, *overrides: str) -> Recipe:
    """The recipe with changes."""
    return load_recipe(write_recipe(folder), overrides)


def start(folder: Path, run: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Train in a process of its own."""
    command = [sys.executable, HERE / "train_script.py", write_recipe(folder), run, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Standard output of a process that succeeds."""
    output, error = process.communicate(timeout=300)
    assert process.returncode == 0, f"{process.returncode}\n{output}\n{error}"
    return output


def rows(run: Path) -> list[Row]:
    """Metrics of a run without what a clock measured."""
    return [{key: value for key, value in row.items() if key != "wall_s"} for row in read_metrics(run / "metrics.csv")]
