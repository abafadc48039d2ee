"""Squared errors of pixels as sums that add up over batches, and the metrics that are made of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from zoo.errors import RunFailed


def summed_squared_errors(predicted: Tensor, wanted: Tensor, counted: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Sum of the squared errors of the numbers that count, and the sums for ``pixel_metrics``.

    Args:
        predicted: numbers of any shape.
        wanted: of the same shape.
        counted: bool, broadcastable to it.

    Returns:
        A scalar, float32 or wider, with a gradient (0 where nothing counts); and detached scalars: ``loss``,
        ``targets``, and ``sum`` and ``squares`` of what was wanted.
    """
    wide = torch.promote_types(predicted.dtype, torch.float32)
    counted = counted.expand_as(predicted)
    wanted = wanted.to(wide) * counted
    loss = ((predicted.to(wide) - wanted) * counted).square().sum()
    sums = {"loss": loss.detach(), "targets": counted.sum(), "sum": wanted.sum(), "squares": wanted.square().sum()}
    return loss, sums


def pixel_metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """``loss``, the mean squared error of a number, and ``explained``, the share of the variance that is predicted.

    1 is all of it, 0 what the mean over everything would do; without any variance it is 0.

    Raises:
        RunFailed: no number counts.
    """
    if not sums["targets"]:
        raise RunFailed("there is no pixel to predict in all of the data, so there is no loss to speak of")
    loss, mean = sums["loss"] / sums["targets"], sums["sum"] / sums["targets"]
    variance = sums["squares"] / sums["targets"] - mean**2
    return {"loss": loss, "explained": 1 - loss / variance if variance > 0 else 0.0}
