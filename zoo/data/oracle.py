"""How well a data set's own oracle does, and chance: the two ends of the scale on which models are measured."""

from __future__ import annotations

import numpy as np
import torch

from zoo.contracts.data import Data, Draw, Split

NO_TARGET = -100


def oracle_scores(data: Data, split: Split, *, samples: int = 2000, rows: int = 250) -> dict[str, float] | None:
    """What the oracle of prepared data scores on a part, without a model: 1.0 where the data is right.

    The oracle is shown neither targets nor answers that stand in the input.

    Args:
        data: any.
        split: the part.
        samples: how many of its first samples.
        rows: how many at a time.

    Returns:
        ``accuracy`` of asked tokens, ``exact`` of whole answers, and ``chance``, if that is known; ``None`` where there
        is no oracle or nothing is asked.
    """
    count = min(samples, data.size(split))
    targets = correct = answers = exact = 0
    for first in range(0, count, rows):
        ids = np.arange(first, min(first + rows, count))
        batch = data.batch(Draw(ids, np.zeros_like(ids), 0), split)
        shown = {name: tensor for name, tensor in batch.items() if name not in ("targets", "blanked", "labels")}
        found = data.oracle({**shown, "ids": batch["blanked"]} if "blanked" in batch else shown)
        if found is None:
            return None
        asked_BT = batch["targets"] != NO_TARGET
        right_BT = (found == batch["targets"]) & asked_BT
        targets, correct = targets + int(asked_BT.sum()), correct + int(right_BT.sum())
        answers += int(asked_BT.any(1).sum())
        exact += int(torch.all(right_BT | ~asked_BT, 1)[asked_BT.any(1)].sum())
    if not targets:
        return None
    chance = data.chance(split)
    return {"accuracy": correct / targets, "exact": exact / answers} | ({} if chance is None else {"chance": chance})
