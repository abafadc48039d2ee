"""Patches of an image, each projected to the width, with class tokens and registers in front.

    x = [class tokens, registers, W patch_1 + b, ..., W patch_n + b]

Dosovitskiy et al. 2021, arXiv:2010.11929, equation 1 (article, section 8); two class tokens are DeiT's (Touvron et
al. 2021, arXiv:2012.12877); registers: Darcet et al. 2024, arXiv:2309.16588. P D + D parameters for patches of P
numbers, and D for each token in front.

Positions count the tokens from 0, class tokens first, for schemes with one axis, and are (row, column) of the patch
for schemes with two. Registers, and class tokens where they have no place, stand nowhere (-1).
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.data import Description
from zoo.contracts.embedding import Embedding
from zoo.nn.patches import grid_of, to_patches

__all__ = ["Patches"]


@final
class Patches(Embedding):
    """The patch embedding of a vision transformer."""

    offers = frozenset({"patches", "grid"})
    takes = frozenset({"image_size", "channels"})
    grid: tuple[int, int]
    patch_size: tuple[int, int]

    @dataclasses.dataclass(kw_only=True)
    class Config(Embedding.Config):
        """Knobs of the patch embedding."""

        patch_size: tuple[int, int] = (16, 16)
        """Height and width of a patch, in pixels; they must divide the image's."""
        class_tokens: int = 1
        """Learned tokens in front whose hidden states stand for the image: 1 in ViT, 2 in a distilled DeiT."""
        registers: int = 0
        """Learned tokens behind these that stand for nothing."""
        class_position: bool = True
        """Whether class tokens have places in a row, before the first patch. On a grid they never have."""
        bias: bool = True
        """Whether the projection has a bias."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        size, channels = self.sizes.image_size, self.sizes.channels
        if size is None or channels is None:
            raise ValueError("image_size or channels is null, and no data filled it in: patches are cut from images")
        if config.class_tokens < 0 or config.registers < 0:
            raise ValueError(f"class_tokens and registers can't be negative: {config.class_tokens}, {config.registers}")
        self.patch_size = (config.patch_size[0], config.patch_size[1])
        self.channels = channels
        self.grid = grid_of((size[0], size[1]), self.patch_size)
        self.extra = config.class_tokens + config.registers
        patches = self.grid[0] * self.grid[1]
        self.length = self.extra + patches
        self.places = patches + (config.class_tokens if config.class_position else 0)
        numbers = channels * self.patch_size[0] * self.patch_size[1]
        self.project = nn.Linear(numbers, self.dim, bias=config.bias)
        self.class_tokens = nn.ModuleList(nn.Embedding(1, self.dim) for _ in range(config.class_tokens))
        self.registers = nn.Embedding(config.registers, self.dim) if config.registers else None

    @classmethod
    def smallest(cls, config: Any) -> Description:
        """Images of a single patch."""
        return Description(image_size=(config.patch_size[0], config.patch_size[1]), channels=1, classes=2)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T, D) class tokens, registers and patches of (B, channels, height, width) images.

        Images may be larger or smaller than the configured size where the positions have no bound.

        Raises:
            ValueError: another number of channels, or sides that patches don't fill.
        """
        if inputs.ndim != 4 or inputs.shape[1] != self.channels:
            raise ValueError(f"images must be (B, {self.channels}, height, width), got {tuple(inputs.shape)}")
        self._grid(inputs)
        x_BTD = self.project(to_patches(inputs, self.patch_size))
        front = [*self.class_tokens.parameters(), *(() if self.registers is None else self.registers.parameters())]
        vectors = [rows.to(x_BTD.dtype).expand(len(x_BTD), -1, -1) for rows in front]
        return torch.cat([*vectors, x_BTD], 1)

    def refuse_other_places(self, inputs: Tensor) -> None:
        """Refuse images of another size: the same place in a row is then another place in the image.

        Raises:
            ValueError: names both sizes.
        """
        if self._grid(inputs) != self.grid:
            known, given = (
                " x ".join(str(side * patch) for side, patch in zip(grid, self.patch_size, strict=True))
                for grid in (self.grid, self._grid(inputs))
            )
            raise ValueError(
                f"images of {given} pixels have patches in other places than the learned ones, which are those of "
                f"{known}; resize the images, or use positions without a bound (rotary_2d, sinusoidal_2d)"
            )

    def _grid(self, inputs: Tensor) -> tuple[int, int]:
        return grid_of((inputs.shape[2], inputs.shape[3]), self.patch_size)

    def positions(self, inputs: Tensor, axes: int) -> Tensor:
        """(1, T, axes) places in a row, or rows and columns."""
        rows, columns = self._grid(inputs)
        if axes == 2:
            row, column = torch.meshgrid(
                torch.arange(rows, device=inputs.device), torch.arange(columns, device=inputs.device), indexing="ij"
            )
            patches_TA = torch.stack([row.flatten(), column.flatten()], 1)
        elif axes == 1:
            before = self.config.class_tokens if self.config.class_position else 0
            patches_TA = torch.arange(before, before + rows * columns, device=inputs.device)[:, None]
        else:
            raise ValueError(f"patches have one axis or two, a position scheme asks for {axes}")
        front_TA = patches_TA.new_full((self.extra, axes), -1)
        if axes == 1 and self.config.class_position:
            classes = self.config.class_tokens
            front_TA[:classes, 0] = torch.arange(classes, device=inputs.device)
        return torch.cat([front_TA, patches_TA])[None]

    def example(self, batch: int, length: int, generator: torch.Generator | None = None) -> Tensor:
        """(B, channels, height, width) images of the configured size, normal with deviation 1."""
        del length
        size = [side * patch for side, patch in zip(self.grid, self.patch_size, strict=True)]
        return torch.randn(batch, self.channels, *size, generator=generator)
