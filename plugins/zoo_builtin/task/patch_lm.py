"""Predict each next patch of an image from the ones before it: GPT-2's task over patches.

    loss = sum over patches i of |patch i - head(hidden state of what comes before patch i)|^2

Patches come in raster order. The hidden state of the class token in front predicts the first patch; without one it
is predicted by the head's bias alone. The shift by one place is made here, once. The loss is the mean squared error
of a number, so models with patches of different sizes compare. El-Nouby et al. 2024, "Scalable pre-training of large
autoregressive image models", sections 3.1 and 3.2, arXiv:2401.08541; Chen et al. 2020, "Generative pretraining from
pixels" (there pixels are classes).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import final

import torch.nn.functional as F

from zoo.contracts.architecture import Architecture
from zoo.contracts.task import Batch, Loss, Task
from zoo.nn.loss import NO_TARGET
from zoo.nn.patches import normalized, to_patches
from zoo.nn.pixel_loss import pixel_metrics, summed_squared_errors

__all__ = ["PatchLM"]


@final
class PatchLM(Task):
    """The next patch of ``images``; ``labels`` only tell which rows are empty."""

    metrics = {"loss": "lower", "explained": "higher"}  # noqa: RUF012
    needs = frozenset({"causal", "patches", "pixels"})
    keys = frozenset({"images", "labels"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Task.Config):
        """Knobs of the task."""

        normalized: bool = False
        """Whether each patch is to be predicted with its own mean and deviation taken out."""

    def count(self, batch: Batch) -> int:
        """Numbers in all images."""
        return int((batch["labels"] != NO_TARGET).sum()) * batch["images"][0].numel()

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        """Summed squared errors; the sums are ``loss``, ``targets``, and ``sum`` and ``squares`` of the pixels."""
        patch_size = model.embedding.patch_size
        assert patch_size is not None
        output = model(batch["images"])
        before_BTD = F.pad(output.hidden[:, :-1], (0, 0, 1, 0))  # what each token's place knows of those before it
        wanted_BTP = to_patches(batch["images"], patch_size)
        if self.config.normalized:
            wanted_BTP = normalized(wanted_BTP)
        counted_B11 = (batch["labels"] != NO_TARGET)[:, None, None]
        total, sums = summed_squared_errors(model.head(before_BTD), wanted_BTP, counted_B11)
        return Loss(output.joined(total, sums["targets"]), sums)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """``loss``, the mean squared error of a number, and ``explained``, the share of the variance predicted.

        Raises:
            RunFailed: no image.
        """
        return pixel_metrics(sums)
