"""Offsets between patches of a grid, numbered as in Swin and timm.

Dimension legend: B batch, T queries, S keys, A axes (row, column), O offsets.
"""

from __future__ import annotations

import torch
from torch import Tensor

Grid = tuple[int, int]


def count_of_offsets(grid: Grid) -> int:
    """How many offsets there are: -(rows - 1) to rows - 1, and as many columns."""
    return (2 * grid[0] - 1) * (2 * grid[1] - 1)


def offset_index(at_BTA: Tensor, keys_BSA: Tensor, grid: Grid) -> Tensor:
    """(1|B, T, S) int64 number of the offset from each key to each query."""
    rows, columns = grid
    row_BTS, column_BTS = (at_BTA[:, :, None] - keys_BSA[:, None]).unbind(-1)
    return (row_BTS + rows - 1) * (2 * columns - 1) + column_BTS + columns - 1


def all_offsets(grid: Grid, device: torch.device) -> Tensor:
    """(O, 2) int64 rows and columns of all offsets, in the order of their numbers."""
    axes = [torch.arange(1 - side, side, device=device) for side in grid]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 1)
