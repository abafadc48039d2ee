"""Fixed sines and cosines of column and row, added to the embeddings of patches.

    PE[row, column] = [sin(column w_i), cos(column w_i), sin(row w_i), cos(row w_i)],  w_i = theta^(-i / (D/4))

Acts on embeddings; any grid, no parameters. He et al. 2022, "Masked autoencoders" (MAE), appendix A.1,
arXiv:2111.06377, in the order of its published code, the column before the row; Beyer et al. 2022, "Better plain
ViT baselines for ImageNet-1k", arXiv:2205.01580.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from zoo.contracts.position import Position

__all__ = ["SinusoidalGrid"]


@final
class SinusoidalGrid(Position):
    """A quarter of the width each for the sines and the cosines of the column and of the row."""

    axes = 2

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the sinusoidal scheme on a grid."""

        theta: float = 10000.0
        """Base of the wavelengths, which go from 2 pi to 2 pi theta patches."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.dim % 4:
            raise ValueError(f"sinusoidal_2d positions need a width divisible by 4, got {self.dim}")

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        """(B, T, D) embeddings plus the table, its phases in float32 or wider whatever the embeddings are."""
        wide = torch.promote_types(x_BTD.dtype, torch.float32)
        quarter = torch.arange(self.dim // 4, dtype=wide, device=x_BTD.device)
        frequency = self.config.theta ** (-quarter / (self.dim // 4))
        row_BTQ, column_BTQ = (at_BT[..., None].to(wide) * frequency for at_BT in at_BTA.unbind(-1))
        table_BTD = torch.cat([column_BTQ.sin(), column_BTQ.cos(), row_BTQ.sin(), row_BTQ.cos()], -1)
        return x_BTD + table_BTD.to(x_BTD.dtype)
