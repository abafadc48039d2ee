"""Lifts a scheme of a row to a grid: one half of each vector stands in rows, the other half in columns.

    embed:   [embed(x[: D/2], row), embed(x[D/2 :], column)]
    rotate:  [rotate(q[: H/2], row), rotate(q[H/2 :], column)]
    bias:    bias(q[: H/2], k[: H/2], row) + bias(q[H/2 :], k[H/2 :], column)

Acts where its ``scheme`` acts, which is made twice: rows and columns have tables of their own. ``sinusoidal`` in
halves, columns first, is MAE's table (He et al. 2022, arXiv:2111.06377), ``learned`` that of Dosovitskiy et al. 2021,
appendix D.4, arXiv:2010.11929, ``rotary`` axial RoPE (Heo et al. 2024, section 3.1, arXiv:2403.13298); a bias goes by
rows plus columns. What comes before in a row may be below in a column, so a scheme that asks is told that queries see
both sides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Literal, cast, final

import torch
from torch import Tensor

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call
from zoo.nn.wrapped import Wrapped

__all__ = ["Axial"]


@final
class Axial(Wrapped):
    """A scheme for rows and the same for columns."""

    axes = 2

    @dataclasses.dataclass(kw_only=True)
    class Config(Wrapped.Config):
        """Which half is which."""

        first: Literal["row", "column"] = "row"
        """The coordinate of the first half (``rotary_2d``, ``sinusoidal_2d``: column)."""

    def __init__(
        self, config: Any, *, scheme: Callable[..., Position], grid: tuple[int, int] | None = None, **parent: Any
    ) -> None:
        super().__init__(config, grid=grid, **parent)
        self.order = (0, 1) if config.first == "row" else (1, 0)
        dims, sizes = ((whole // 2, whole - whole // 2) for whole in (self.dim, self.size))
        lengths = (None, None) if grid is None else (grid[self.order[0]], grid[self.order[1]])
        self.wrap(
            *(
                scheme(dim=dim, heads=self.heads, size=size, length=length, causal=False, grid=grid)
                for dim, size, length in zip(dims, sizes, lengths, strict=True)
            )
        )
        made = self.schemes[0]
        if made.axes != 1 or not made.liftable:
            reason = "stands on a grid already" if made.axes != 1 else "counts keys in a row"
            raise ValueError(f"axial can't lift {type(made).__name__}, which {reason}; choose another scheme")

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        """(B, T, D) with its halves placed.

        Raises:
            ValueError: a row or column past the scheme's bound.
        """
        halves = zip(self._both(), _halves(x_BTD), self._coordinates(at_BTA), strict=True)
        return torch.cat([scheme.embed(x, at_BT1) for scheme, x, at_BT1 in halves], -1)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> list[Any]:
        """What each half prepares."""
        halves = zip(self._both(), self._coordinates(at_BTA), self._coordinates(keys_BSA), strict=True)
        return [scheme.prepare(at_BT1, keys_BS1) for scheme, at_BT1, keys_BS1 in halves]

    def rotate(self, x_BNTH: Tensor, prepared: list[Any]) -> Tensor:
        """(B, N, T, H) with its halves turned."""
        halves = zip(self._both(), _halves(x_BNTH), prepared, strict=True)
        return torch.cat([scheme.rotate(x, of_half) for scheme, x, of_half in halves], -1)

    def rotate_keys(self, k_BNTH: Tensor, prepared: list[Any]) -> Tensor:
        """(B, N, T, H) with its halves turned."""
        halves = zip(self._both(), _halves(k_BNTH), prepared, strict=True)
        return torch.cat([scheme.rotate_keys(k, of_half) for scheme, k, of_half in halves], -1)

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: list[Any]) -> Tensor | None:
        """The sum of both in float32 or wider, broadcastable to (B, N, T, S)."""
        halves = zip(self._both(), _halves(q_BNTH), _halves(k_BNSH), prepared, strict=True)
        first, second = (scheme.bias(q, k, call, of_half) for scheme, q, k, of_half in halves)
        if first is None or second is None:
            return None
        return first.to(torch.promote_types(first.dtype, torch.float32)) + second

    def _both(self) -> Iterator[Position]:
        return iter(cast(Any, self.schemes))

    def _coordinates(self, at_BTA: Tensor) -> list[Tensor]:
        return [at_BTA[..., axis : axis + 1] for axis in self.order]


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]
