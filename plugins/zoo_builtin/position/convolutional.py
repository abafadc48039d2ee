"""Each patch is told of its neighbours, and of the image's edge, by a convolution over the grid (CPE).

    x[row, column] + (W * x)[row, column] + b,  W a kernel of k x k for each element of the width, zeros outside

Acts on embeddings, once, before the first block (the paper also tries later ones). Places follow from content and
edge, at k^2 D weights. Patches that aren't there, and class tokens, are zeros to their neighbours. It looks at patches
on all sides, so it is for models that may: a causal one is refused, and there is no cache.
Chu et al. 2021, "Conditional positional encodings for vision transformers", section 3, arXiv:2102.10882.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.position import Position
from zoo.contracts.values.call import no_autocast

__all__ = ["Convolutional"]


@final
class Convolutional(Position):
    """A depthwise convolution added to its input."""

    axes = 2
    bounded = True
    mixes = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the convolution."""

        side: int = 3
        """Side k of the kernel, odd."""

    def __init__(self, config: Any, *, grid: tuple[int, int] | None = None, **parent: Any) -> None:
        super().__init__(config, grid=grid, **parent)
        if grid is None:
            raise ValueError("convolutional needs a grid, the rows and columns of an image's patches")
        if self.causal:
            raise ValueError(
                "convolutional looks at patches on all sides, which a causal model must not; choose another"
            )
        if config.side < 1 or config.side % 2 == 0:
            raise ValueError(f"side must be an odd number of patches, got {config.side}")
        self.extent = grid
        self.weight = nn.Parameter(torch.empty(self.dim, 1, config.side, config.side))
        self.shift = nn.Parameter(torch.empty(self.dim))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Uniform within 1 / k, as convolutions begin in torch."""
        del name
        parameter.uniform_(-1 / self.config.side, 1 / self.config.side, generator=generator)

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        """(B, T, D) embeddings plus what the convolution makes of those around them, in float32 or wider.

        Raises:
            ValueError: a row or column outside the grid.
        """
        self.refuse_past(at_BTA, *self.extent)
        rows, columns = self.extent
        wide = torch.promote_types(x_BTD.dtype, torch.float32)
        place_BTD = (at_BTA[..., :1] * columns + at_BTA[..., 1:]).expand(x_BTD.shape)
        image_BPD = torch.zeros_like(x_BTD[:, :1], dtype=wide).repeat(1, rows * columns, 1)
        image_BDRC = image_BPD.scatter_add(1, place_BTD, x_BTD.to(wide)).transpose(1, 2).unflatten(2, self.extent)
        weight, shift = self.weight.to(wide), self.shift.to(wide)
        with no_autocast(x_BTD.device):
            around = F.conv2d(image_BDRC, weight, shift, padding=self.config.side // 2, groups=self.dim)
        return x_BTD + around.flatten(2).transpose(1, 2).gather(1, place_BTD).to(x_BTD.dtype)
