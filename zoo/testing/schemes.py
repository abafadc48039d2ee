"""Position schemes of the kit's own, to check attentions with: one that rotates, two that add to the scores.

Each depends on distances only and on nothing else, so that what an attention makes of positions shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from zoo.contracts.position import Position

if TYPE_CHECKING:
    from zoo.contracts.values.call import Call


class Rotated(Position):
    """Turns element i with i + H/2, so that an attention which cuts its heads in two after the rotation fails."""

    relative = True

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        """(1|B, 1, T, pairs) cosines and sines in float64."""
        pair = torch.arange(self.size // 2, dtype=torch.float64, device=at_BTA.device)
        phase = at_BTA[:, None, :, :1].double() * 0.9 * 2.0**-pair
        return phase.cos(), phase.sin()

    def rotate(self, x_BNTH: Tensor, prepared: tuple[Tensor, Tensor]) -> Tensor:
        """Same shape and dtype; an odd last element is left alone."""
        pairs = x_BNTH.shape[-1] // 2
        wide = torch.promote_types(x_BNTH.dtype, torch.float32)
        cos, sin = (table.to(wide)[..., :pairs] for table in prepared)
        a, b, rest = x_BNTH.to(wide).split([pairs, pairs, x_BNTH.shape[-1] - 2 * pairs], -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1).to(x_BNTH.dtype)


class Biased(Position):
    """A penalty on distance, steeper in each further head, and different before and after."""

    relative = True

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, N, T, S) in float64."""
        distance_BTS = (at_BTA[:, :, None, 0] - keys_BSA[:, None, :, 0]).double()
        slope = torch.arange(1, self.heads + 1, dtype=torch.float64, device=at_BTA.device) / self.heads
        shape = torch.where(distance_BTS < 0, 0.5 * distance_BTS, -distance_BTS)
        return (slope[:, None, None] * shape[:, None]).cos() * 2

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        """(1|B, N, T, S) in float32 or wider."""
        return prepared.to(torch.promote_types(q_BNTH.dtype, torch.float32))


class ContentBiased(Position):
    """Shaw's kind: the inner product of the query with a vector of the distance."""

    content, relative = True, True
    reach = 4

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        self.table = nn.Embedding(2 * self.reach + 1, self.size)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Tensor:
        """(1|B, T, S) rows of the table."""
        distance_BTS = keys_BSA[:, None, :, 0] - at_BTA[:, :, None, 0]
        return distance_BTS.clamp(-self.reach, self.reach) + self.reach

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Tensor) -> Tensor:
        """(B, N, T, S), scaled like the scores."""
        by_distance = q_BNTH @ self.table.weight.to(q_BNTH.dtype).T
        rows = prepared[:, None].expand(*q_BNTH.shape[:3], -1)
        return by_distance.gather(-1, rows) * call.scale


SCHEMES: dict[str, tuple[str, type[Position]]] = {
    "rotated": ("rotate", Rotated),
    "biased": ("bias", Biased),
    "biased by content": ("content_bias", ContentBiased),
}
"""Name in messages → the word that an attention must offer, and the scheme."""
