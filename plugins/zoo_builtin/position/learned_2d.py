"""A learned vector for each row and one for each column of a grid of patches, both added to the embeddings.

Acts on embeddings. Rows + columns vectors instead of rows x columns: a patch's place is the sum of two. Tried for
ViT in Dosovitskiy et al. 2021, "An image is worth 16x16 words", appendix D.4, arXiv:2010.11929 (there half the
width each, concatenated).
"""

from __future__ import annotations

from typing import Any, final

from torch import Tensor, nn

from zoo.contracts.position import Position

__all__ = ["LearnedGrid"]


@final
class LearnedGrid(Position):
    """A table of rows and a table of columns."""

    axes = 2
    bounded = True

    def __init__(self, config: Any, *, grid: tuple[int, int] | None = None, **parent: Any) -> None:
        super().__init__(config, grid=grid, **parent)
        if grid is None:
            raise ValueError(
                "learned_2d needs a grid, the rows and columns of an image's patches; use learned for text"
            )
        self.rows, self.columns = (nn.Embedding(count, self.dim) for count in grid)

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        """(B, T, D) embeddings with the vectors of their rows and columns added.

        Raises:
            ValueError: a row or column outside the grid.
        """
        self.refuse_past(at_BTA, self.rows.num_embeddings, self.columns.num_embeddings)
        return x_BTD + self.rows(at_BTA[..., 0]) + self.columns(at_BTA[..., 1])
