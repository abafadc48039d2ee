"""A learned bias for each head and each offset between two patches of a grid, in rows and columns.

    bias[n, t, s] = table[(row_t - row_s, column_t - column_s), n]

Acts on scores. The table has (2 rows - 1)(2 columns - 1) rows, numbered as in Swin and timm. One table
serves all layers that share the scheme; as many schemes as layers (``position`` as a list) give each its own.
Liu et al. 2021, "Swin transformer", section 3.2, equation 4, arXiv:2103.14030.
"""

from __future__ import annotations

from typing import Any, final

from torch import Tensor, nn

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call
from zoo.nn.offsets import count_of_offsets, offset_index

__all__ = ["RelativeGrid"]


@final
class RelativeGrid(Position):
    """A table of offsets, for one size of grid."""

    axes = 2
    relative = True
    bounded = True

    def __init__(self, config: Any, *, grid: tuple[int, int] | None = None, **parent: Any) -> None:
        super().__init__(config, grid=grid, **parent)
        if grid is None:
            raise ValueError("relative_2d needs a grid, the rows and columns of an image's patches; use t5 for text")
        self.extent = grid
        self.table = nn.Embedding(count_of_offsets(grid), self.heads)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, N, T, S) the bias.

        Raises:
            ValueError: a row or column outside the grid.
        """
        for positions in (at_BTA, keys_BSA):
            self.refuse_past(positions, *self.extent)
        return self.table(offset_index(at_BTA, keys_BSA, self.extent)).permute(0, 3, 1, 2)

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        """(1|B, N, T, S), the same for all queries and keys."""
        del q_BNTH, k_BNSH, call
        return prepared
