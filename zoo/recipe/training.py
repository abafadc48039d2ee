"""The ``training`` section of a recipe: what the zoo's training module adds to Lightning's Trainer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

RUNS = Path("runs")
"""Folder of the runs that nobody named, in the working directory."""


@dataclasses.dataclass(kw_only=True)
class TrainingConfig:
    """Knobs of the training module. None changes what is computed when the number of devices changes."""

    clip_norm: float | None = 1.0
    """Largest 2-norm of the whole gradient of an optimizer step; null is no clipping."""
    micro_batch_size: int | None = None
    """Rows per device and forward pass; changes memory, never the mathematics. Null is all rows at once."""
    freeze: list[str] = dataclasses.field(default_factory=list)
    """Parts of the model whose parameters stay as they are: ``embedding``, ``stack.blocks.0``. Their dropout is off."""
    compile: bool = False
    """Compile the model with torch.compile."""
    validate_every: int = 200
    """Optimizer steps from one validation to the next."""
    validate_batches: int | None = None
    """Batches of one validation; null is the whole validation part."""
    save_every: int = 200
    """Optimizer steps from one checkpoint to the next."""
    keep: int = 2
    """Newest checkpoints that stay on disk, the best one not counted."""
    on_nonfinite: Literal["stop"] = "stop"
    """What a loss or gradient that isn't finite does: ``stop`` ends the run as diverged."""
    workers: int = 0
    """Data loader processes per device; 0 loads in the training process."""
    log_every: int = 10
    """Optimizer steps from one row of metrics to the next."""

    def __post_init__(self) -> None:
        for name in (
            "validate_every",
            "save_every",
            "keep",
            "log_every",
            "micro_batch_size",
            "validate_batches",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if self.workers < 0:
            raise ValueError(f"workers is {self.workers}; it must be at least 0")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm is {self.clip_norm}; it must be above 0, or null for no clipping")
