"""Scores of classes, for texts and for images, by any architecture."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from zoo.contracts.architecture import Architecture, Output
from zoo.contracts.values.mask import Mask


def class_scores(model: Architecture, batch: Mapping[str, Tensor]) -> tuple[Tensor, Output]:
    """Scores of a batch's rows.

    Args:
        model: one whose head scores classes.
        batch: ``images`` (B, C, H, W), or ``ids`` (B, T) int64 and ``valid`` (B, T) bool; an encoder-decoder reads
            the text on both sides.

    Returns:
        (B, classes), float32 or wider, and what the model gave.
    """
    if "images" in batch:
        output, valid_BT = model(batch["images"]), None
    else:
        ids_BT, valid_BT = batch["ids"], batch["valid"]
        source = {"source_BS": ids_BT, "source_valid_BS": valid_BT} if "cross" in model.offers else {}
        output = model(ids_BT, mask=Mask(causal="causal" in model.offers, valid_BS=valid_BT), **source)
    scores_BC = model.head(output.hidden, valid_BT)
    return scores_BC.to(torch.promote_types(scores_BC.dtype, torch.float32)), output
