"""Learned positions of a grid of patches for another grid, so that weights move to images of another size.

Dimension legend: T tokens, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def resized_positions(table_TD: Tensor, old_grid: tuple[int, int], new_grid: tuple[int, int], extra: int) -> Tensor:
    """The table for a new grid, bicubic with antialiasing, computed in float32 or wider.

    Dosovitskiy et al. 2021, section 3.2 (arXiv:2010.11929), in the form of timm. The new size is given in whole
    patches, never as a factor, which rounding could make one row too short.

    Args:
        table_TD: a row for each token, ``extra`` of them and then the patches in raster order.
        old_grid: rows and columns that it is for.
        new_grid: rows and columns that it shall be for.
        extra: rows in front that stand for no patch; they stay as they are.

    Returns:
        (extra + rows * columns, D), dtype as before; the table itself where the grid is the same.

    Raises:
        ValueError: a table of another length.
    """
    rows, columns = old_grid
    if len(table_TD) != extra + rows * columns:
        raise ValueError(
            f"a table of {len(table_TD)} positions isn't that of {extra} tokens and {rows} x {columns} patches"
        )
    if tuple(old_grid) == tuple(new_grid):
        return table_TD
    front_TD, patches_TD = table_TD[:extra], table_TD[extra:]
    wide = patches_TD.to(torch.promote_types(table_TD.dtype, torch.float32))
    image_1DHW = wide.T.unflatten(1, (rows, columns))[None]
    resized_1DHW = F.interpolate(image_1DHW, size=tuple(new_grid), mode="bicubic", antialias=True)
    return torch.cat([front_TD, resized_1DHW[0].flatten(1).T.to(table_TD.dtype)])
