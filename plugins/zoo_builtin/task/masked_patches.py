"""Hide some squares of an image and predict their pixels from the rest.

    loss = sum over hidden pixels of |pixel - predicted pixel|^2

Hidden pixels are 0, the mean of normalized data, so that a hidden patch is embedded as the bias of the projection,
a vector that is learned. Which squares are hidden belongs to (seed, epoch, sample); all images hide equally many.
Squares are laid on pixels and need not be the model's patches. Xie et al. 2022, "SimMIM", arXiv:2111.09886; targets
with the mean and deviation of their square taken out: He et al. 2022, "Masked autoencoders are scalable vision
learners", section 3, arXiv:2111.06377 (there hidden patches are left out of the encoder, which saves its cost).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Data, Draw, Split
from zoo.contracts.task import Batch, Loss, Task
from zoo.data.permutation import uniform
from zoo.nn.loss import NO_TARGET
from zoo.nn.patches import grid_of, normalized, to_images, to_patches
from zoo.nn.pixel_loss import pixel_metrics, summed_squared_errors

__all__ = ["MaskedPatches"]

_HIDES = 200


@final
class MaskedPatches(Task):
    """The hidden pixels of ``images``; ``labels`` only tell which rows are empty."""

    metrics = {"loss": "lower", "explained": "higher"}  # noqa: RUF012
    needs = frozenset({"bidirectional", "patches", "pixels"})
    keys = frozenset({"images", "labels"})

    @dataclasses.dataclass(kw_only=True)
    class Config(Task.Config):
        """Knobs of the task."""

        ratio: float = 0.6
        """Share of the squares that are hidden (SimMIM: 0.6, MAE: 0.75)."""
        patch_size: tuple[int, int] = (16, 16)
        """Height and width of the hidden squares in pixels; they must divide the image's."""
        normalized: bool = False
        """Whether each square is to be predicted with its own mean and deviation taken out."""

    def __init__(self, config: Any, *, data: Data) -> None:
        super().__init__(config, data=data)
        if not 0 < config.ratio < 1:
            raise ValueError(f"ratio must be above 0 and below 1, got {config.ratio}")
        self.patch_size = (config.patch_size[0], config.patch_size[1])
        if (size := data.describe().image_size) is not None:
            self._hidden_squares((size[0], size[1]))

    def _hidden_squares(self, size: tuple[int, int]) -> tuple[tuple[int, int], int]:
        """Rows and columns of squares, and how many of these are hidden.

        Raises:
            ValueError: none or all.
        """
        grid = grid_of(size, self.patch_size)
        squares = grid[0] * grid[1]
        hidden = round(self.config.ratio * squares)
        if not 0 < hidden < squares:
            raise ValueError(f"ratio {self.config.ratio} hides {hidden} of {squares} squares; make patch_size smaller")
        return grid, hidden

    def prepare(self, batch: Batch, draw: Draw, split: Split) -> Batch:
        """``images`` with hidden pixels at 0, ``hidden`` (B, 1, H, W) bool, and the ``pixels`` to predict."""
        del split
        images_BCHW = batch["images"]
        grid, count = self._hidden_squares((images_BCHW.shape[2], images_BCHW.shape[3]))
        places = np.arange(grid[0] * grid[1])
        chance_BT = uniform(draw.seed, draw.epochs[:, None], draw.samples[:, None], _HIDES, places)
        hidden_BT = chance_BT.argsort(1, kind="stable").argsort(1) < count
        hidden_BT &= (batch["labels"] != NO_TARGET).numpy()[:, None]
        hidden_B1HW = self._painted(torch.from_numpy(hidden_BT), grid)
        pixels_BCHW = self._wanted(images_BCHW, grid) if self.config.normalized else images_BCHW
        return {
            **batch,
            "images": images_BCHW.masked_fill(hidden_B1HW, 0.0),
            "hidden": hidden_B1HW,
            "pixels": pixels_BCHW,
        }

    def _painted(self, hidden_BT: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B, 1, H, W) which pixels the hidden squares cover."""
        height, width = self.patch_size
        return to_images(hidden_BT[:, :, None].repeat(1, 1, height * width), grid, self.patch_size)

    def _wanted(self, images_BCHW: Tensor, grid: tuple[int, int]) -> Tensor:
        return to_images(normalized(to_patches(images_BCHW, self.patch_size)), grid, self.patch_size)

    def count(self, batch: Batch) -> int:
        """Hidden numbers."""
        return int(batch["hidden"].sum()) * batch["images"].shape[1]

    def loss(self, model: Architecture, batch: Batch) -> Loss:
        """Summed squared errors; the sums are ``loss``, ``targets``, and ``sum`` and ``squares`` of hidden pixels."""
        patch_size = model.embedding.patch_size
        assert patch_size is not None
        height, width = batch["images"].shape[2:]
        output = model(batch["images"])
        predicted_BCHW = to_images(model.head(output.hidden), grid_of((height, width), patch_size), patch_size)
        total, sums = summed_squared_errors(predicted_BCHW, batch["pixels"], batch["hidden"])
        return Loss(output.joined(total, sums["targets"]), sums)

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """``loss``, the mean squared error of a number, and ``explained``, the share of the variance predicted.

        Raises:
            RunFailed: nothing was hidden.
        """
        return pixel_metrics(sums)
