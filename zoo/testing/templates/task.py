"""The next token is predicted from those before it; change what ``loss`` says.

    loss = -sum over targets of log p(target | tokens up to here)

Sums, never means: the training module divides once, by all targets of an optimizer step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch.nn.functional as F

from zoo.contracts.architecture import Architecture
from zoo.contracts.task import Batch, Loss, Task
from zoo.contracts.values.mask import mask_of
from zoo.errors import RunFailed

__all__ = ["Mine"]


class Mine(Task):
    """``ids`` in, ``targets`` out; a target of -100 is none."""

    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {"loss": "lower", "accuracy": "higher"}
    needs = frozenset({"causal"})
    keys = frozenset({"ids", "targets"})

    def count(self, batch: Batch) -> int:
        """Number of targets."""
        return int((batch["targets"] != -100).sum())

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        """Summed cross-entropy, with whatever losses the model's parts have of their own."""
        output = model(batch["ids"], mask=mask_of(batch, causal=True))
        scores, targets = model.head(output.hidden).flatten(0, 1), batch["targets"].flatten()
        nats = F.cross_entropy(scores, targets, ignore_index=-100, reduction="sum")
        right, count = (scores.argmax(-1) == targets).sum(), (targets != -100).sum()
        return Loss(output.joined(nats, count), {"loss": nats.detach(), "targets": count, "right": right})

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Means over a whole part."""
        if not sums["targets"]:
            raise RunFailed("there was no target in all of it")
        return {"loss": sums["loss"] / sums["targets"], "accuracy": sums["right"] / sums["targets"]}
