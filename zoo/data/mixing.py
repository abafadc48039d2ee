"""Training images mixed with partners, each choice drawn from (seed, epoch, sample id) and from nothing else.

    mixup:  image = share * own + (1 - share) * partner
    cutmix: a box of the partner's pixels, 1 - share of the area, in the own image

The label counts for the share, the partner's for the rest. Zhang et al. 2018, "mixup", arXiv:1710.09412; Yun et al.
2019, "CutMix", arXiv:1905.04899. Shares and boxes are distributed as in timm, mode ``elem``.

Dimension legend: B batch, C channels, H height, W width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor

from zoo.contracts.data import Draw
from zoo.data.permutation import uniform

_MIXED, _CUT, _SHARE, _PARTNER, _ROW, _COLUMN = range(100, 106)  # apart from the words that augmentation draws

NO_LABEL = -100


class Mixing:
    """How images are mixed.

    Args:
        mixup: both parameters of the beta distribution of shares; 0 for no mixup.
        cutmix: the same of cutmix.
        probability: of mixing an image at all.
        cut: probability of cutmix for an image that is mixed, where there is mixup too.

    Raises:
        ValueError: a number out of its range.
    """

    def __init__(self, *, mixup: float, cutmix: float, probability: float, cut: float) -> None:
        if min(mixup, cutmix) < 0:
            raise ValueError(f"mixup and cutmix must be at least 0, got {mixup} and {cutmix}")
        if not 0 <= min(probability, cut) <= max(probability, cut) <= 1:
            raise ValueError(f"probabilities are from 0 to 1, not {probability} and {cut}")
        self.mixup, self.cutmix, self.probability = mixup, cutmix, probability
        self.cut = cut if mixup and cutmix else float(cutmix > 0)

    @property
    def active(self) -> bool:
        """Whether any image is ever mixed."""
        return self.probability > 0 and (self.mixup > 0 or self.cutmix > 0)

    def __call__(
        self, batch: Mapping[str, Tensor], draw: Draw, fetch: Callable[[Draw], Mapping[str, Tensor]], size: int
    ) -> dict[str, Tensor]:
        """The batch mixed.

        Args:
            batch: ``images`` (B, C, H, W) and ``labels`` (B,); left as it is.
            draw: of these images.
            fetch: gives the batch of another draw from the same part.
            size: samples in the part.

        Returns:
            images: (B, C, H, W).
            labels, other_labels: (B,) own and partner's; ``other_labels`` is -100 where nothing was mixed in.
            share: (B,) float32, weight of the own label.
        """
        chance = {salt: uniform(draw.seed, draw.epochs, draw.samples, salt) for salt in range(_MIXED, _COLUMN + 1)}
        mixed_B = (draw.samples >= 0) & (chance[_MIXED] < self.probability)
        partners_B = (draw.samples + 1 + (chance[_PARTNER] * (size - 1)).astype(np.int64)) % size
        other = fetch(Draw(np.where(mixed_B, partners_B, -1), draw.epochs, draw.seed))
        mixed_B &= ((batch["labels"] != NO_LABEL) & (other["labels"] != NO_LABEL)).numpy()  # a damaged file has none
        images_BCHW, share_B = batch["images"].clone(), np.ones(len(mixed_B))
        for row in np.flatnonzero(mixed_B):
            drawn = {salt: float(numbers_B[row]) for salt, numbers_B in chance.items()}
            share_B[row] = self._mix(images_BCHW[row], other["images"][row], drawn)
        return {
            **batch,
            "images": images_BCHW,
            "other_labels": torch.where(torch.from_numpy(mixed_B), other["labels"], NO_LABEL),
            "share": torch.from_numpy(share_B).float(),
        }

    def _mix(self, own_CHW: Tensor, other_CHW: Tensor, drawn: Mapping[int, float]) -> float:
        """Mix one image in place; gives the share that is left of it."""
        cuts = drawn[_CUT] < self.cut
        alpha = self.cutmix if cuts else self.mixup
        share = float(betaincinv(alpha, alpha, drawn[_SHARE]))
        if not cuts:
            own_CHW.mul_(share).add_(other_CHW, alpha=1 - share)
            return share
        height, width = own_CHW.shape[1:]
        rows, columns = _span(share, drawn[_ROW], height), _span(share, drawn[_COLUMN], width)
        own_CHW[:, rows, columns] = other_CHW[:, rows, columns]
        return 1 - (rows.stop - rows.start) * (columns.stop - columns.start) / (height * width)


def _span(share: float, centre: float, side: int) -> slice:
    """What a box of sqrt(1 - share) of the side covers of it, around a place that is given from 0 to 1."""
    length, middle = int(side * math.sqrt(1 - share)), int(side * centre)
    return slice(max(0, middle - length // 2), min(side, middle + (length + 1) // 2))
