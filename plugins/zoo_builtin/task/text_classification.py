"""Which class a text belongs to.

    loss = - sum over texts of log p(class | text)

In training a label may be smoothed, (1 - s) of it on the class and s spread over all (Szegedy et al. 2016,
arXiv:1512.00567, section 7). An encoder reads the text with padding hidden, as BERT (Devlin et al. 2019,
arXiv:1810.04805, section 4.1); a decoder too, and its last token knows all of it (``head: {name: classification,
pool: last}``; Radford et al. 2018, section 3.2); an encoder-decoder gets the text on both sides, as BART (Lewis et
al. 2020, arXiv:1910.13461, section 3.1). Cost beside the model's: nothing to speak of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Data
from zoo.contracts.task import Batch, Loss, Task
from zoo.errors import RunFailed
from zoo.nn.class_scores import class_scores
from zoo.nn.loss import NO_TARGET

__all__ = ["TextClassification"]


@final
class TextClassification(Task):
    """Classes of ``ids`` with ``valid`` by ``labels``."""

    metrics = {  # noqa: RUF012
        "loss": "lower",
        "accuracy": "higher",
        "macro_f1": "higher",
    }
    needs = frozenset({"tokens", "class_scores"})
    gives_source = True
    keys = frozenset({"ids", "valid", "labels"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Task.Config):
        """Knobs of the task."""

        label_smoothing: float = 0.0
        """Share of a label that is spread over all classes in training."""

    def __init__(self, config: Any, *, data: Data) -> None:
        super().__init__(config, data=data)
        if not 0 <= config.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, got {config.label_smoothing}")

    def count(self, batch: Batch) -> int:
        """Number of texts with a label."""
        return int((batch["labels"] != NO_TARGET).sum())

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        """Summed loss in nats; the sums are ``loss``, ``targets``, and for each class c three numbers of texts.

        ``had_c`` belong to it, ``made_c`` were said to, ``hits_c`` were so rightly.
        """
        scores_BC, output = class_scores(model, batch)
        labels_B, smoothing = batch["labels"], self.config.label_smoothing if model.training else 0.0
        total = F.cross_entropy(scores_BC, labels_B, ignore_index=NO_TARGET, reduction="sum", label_smoothing=smoothing)
        sums = {"loss": total.detach(), "targets": (labels_B != NO_TARGET).sum(), **_counts(scores_BC, labels_B)}
        return Loss(output.joined(total, sums["targets"]), sums)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """``loss`` in nats for each text, ``accuracy``, and ``macro_f1``, the mean F1 of the classes that occur.

        Raises:
            RunFailed: no label.
        """
        if not sums["targets"]:
            raise RunFailed("no text in all of the data has a label, so there is no loss to speak of")
        hits, made, had = (_of_classes(sums, name) for name in ("hits", "made", "had"))
        scores = [2 * h / (m + n) for h, m, n in zip(hits, made, had, strict=True) if m + n]
        accuracy = sum(hits) / sums["targets"]
        return {"loss": sums["loss"] / sums["targets"], "accuracy": accuracy, "macro_f1": sum(scores) / len(scores)}


def _counts(scores_BC: Tensor, labels_B: Tensor) -> dict[str, Tensor]:
    """Texts of each class, those taken for it, and those of both kinds; without waiting for the device."""
    classes_C = torch.arange(scores_BC.shape[1], device=scores_BC.device)
    had_BC = labels_B[:, None] == classes_C
    made_BC = (scores_BC.detach().argmax(1)[:, None] == classes_C) & (labels_B != NO_TARGET)[:, None]
    counted = {"hits": had_BC & made_BC, "made": made_BC, "had": had_BC}
    return {
        f"{name}_{place}": count
        for name, chosen_BC in counted.items()
        for place, count in enumerate(chosen_BC.sum(0).unbind())
    }


def _of_classes(sums: Mapping[str, float], name: str) -> list[float]:
    return [value for key, value in sums.items() if key.startswith(f"{name}_")]
