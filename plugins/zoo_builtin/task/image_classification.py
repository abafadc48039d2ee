"""Which class an image belongs to.

    loss = - sum over images of log p(class | image)

In training a label may be smoothed, (1 - s) of it on the class and s spread over all (Szegedy et al. 2016,
arXiv:1512.00567, section 7), and images may be mixed with others, with their labels in proportion: mixup and cutmix
(``zoo.data.mixing``), as DeiT is trained (Touvron et al. 2021, arXiv:2012.12877, table 9). The partner, the share and
the box belong to (seed, epoch, sample), so that batches, micro-batches and ranks change nothing. Validation sees
plain images and plain labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Data, Draw, Split
from zoo.contracts.task import Batch, Loss, Task
from zoo.data.mixing import Mixing
from zoo.errors import RunFailed
from zoo.nn.loss import NO_TARGET

__all__ = ["ImageClassification"]


@final
class ImageClassification(Task):
    """Classes of ``images`` by ``labels``."""

    metrics = {  # noqa: RUF012
        "loss": "lower",
        "accuracy": "higher",
        "top5": "higher",
    }
    needs = frozenset({"patches", "class_scores"})
    keys = frozenset({"images", "labels"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Task.Config):
        """Knobs of the task."""

        label_smoothing: float = 0.0
        """Share of a label that is spread over all classes in training (DeiT: 0.1)."""
        mixup: float = 0.0
        """Parameter of the beta distribution of mixup's shares; 0 for no mixup (DeiT: 0.8)."""
        cutmix: float = 0.0
        """Parameter of the beta distribution of cutmix's shares; 0 for no cutmix (DeiT: 1.0)."""
        mix_probability: float = 1.0
        """Probability of mixing a training image, where mixup or cutmix is on."""
        cut_probability: float = 0.5
        """Probability that a mixed image is mixed by cutmix, where both are on."""

    def __init__(self, config: Any, *, data: Data) -> None:
        super().__init__(config, data=data)
        if not 0 <= config.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, got {config.label_smoothing}")
        self.mixing = Mixing(
            mixup=config.mixup,
            cutmix=config.cutmix,
            probability=config.mix_probability,
            cut=config.cut_probability,
        )

    def prepare(self, batch: Batch, draw: Draw, split: Split) -> Batch:
        """Training images mixed with partners, with ``other_labels`` and ``share`` beside ``labels``."""
        if split != "train" or not self.mixing.active:
            return batch
        return self.mixing(batch, draw, lambda other: self.data.batch(other, split), self.data.size(split))

    def count(self, batch: Batch) -> int:
        """Number of images with a label."""
        return int((batch["labels"] != NO_TARGET).sum())

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        """Summed loss in nats; the sums are ``loss``, ``targets``, ``correct`` and ``correct5``.

        A mixed image is answered rightly with the label of the larger share.
        """
        output = model(batch["images"])
        scores_BC = model.head(output.hidden)
        scores_BC = scores_BC.to(torch.promote_types(scores_BC.dtype, torch.float32))
        smoothing = self.config.label_smoothing if model.training else 0.0
        loss_B, label_B = _losses(scores_BC, batch["labels"], smoothing), batch["labels"]
        if "share" in batch:
            share_B, other_B = batch["share"], batch["other_labels"]
            loss_B = share_B * loss_B + (1 - share_B) * _losses(scores_BC, other_B, smoothing)
            label_B = torch.where(share_B < 0.5, other_B, label_B)
        total = loss_B.sum()
        best_B5 = scores_BC.detach().topk(min(5, scores_BC.shape[1])).indices
        hit_B5 = best_B5 == label_B[:, None]
        sums = {"loss": total.detach(), "targets": (batch["labels"] != NO_TARGET).sum()}
        sums |= {"correct": hit_B5[:, 0].sum(), "correct5": hit_B5.sum()}
        return Loss(output.joined(total, sums["targets"]), sums)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """``loss`` in nats for each image, ``accuracy``, and ``top5``: how often the class is among the best five.

        Raises:
            RunFailed: no label.
        """
        if not sums["targets"]:
            raise RunFailed("no image in all of the data has a label, so there is no loss to speak of")
        names = {"loss": "loss", "accuracy": "correct", "top5": "correct5"}
        return {name: sums[key] / sums["targets"] for name, key in names.items()}


def _losses(scores_BC: Tensor, labels_B: Tensor, smoothing: float) -> Tensor:
    """(B,) cross-entropy of each image, 0 where there is no label."""
    return F.cross_entropy(scores_BC, labels_B, ignore_index=NO_TARGET, reduction="none", label_smoothing=smoothing)
