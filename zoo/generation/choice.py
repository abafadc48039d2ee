"""Choosing the next id from the scores: greedy, or drawn at a temperature from the likeliest.

Dimension legend: B rows, V vocabulary, K ids that may be drawn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from zoo.errors import RunFailed, UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chooser:
    """Picks the next id of each row from its scores."""

    temperature: float
    top_k: int
    top_p: float
    vocab_size: int | None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UserError(f"temperature is {self.temperature}; it must be at least 0 (0 is greedy)")
        if self.top_k < 0:
            raise UserError(f"top_k is {self.top_k}; it must be at least 0 (0 is off)")
        if not 0 <= self.top_p <= 1:
            raise UserError(f"top_p is {self.top_p}; it must be from 0 to 1 (1 is off)")

    def choose(self, scores_BV: Tensor, random: Sequence[torch.Generator]) -> Tensor:
        """(B,) int64 ids; each row draws one number from its own generator, whatever the others do.

        Raises:
            RunFailed: a row's best score isn't finite.
        """
        scores_BV = scores_BV[:, : self.vocab_size]
        best_B1 = scores_BV.amax(-1, keepdim=True)
        if not bool(best_B1.isfinite().all()):
            raise RunFailed("the model's scores aren't finite, so no token can be chosen; the run may have diverged")
        if self.temperature == 0 or self.top_k == 1 or self.top_p == 0:
            return scores_BV.argmax(-1)
        kept_BK, ids_BK = self._kept((scores_BV - best_B1).double() / self.temperature)
        drawn = [torch.rand((), generator=generator, dtype=torch.float64) for generator in random]
        place_B1 = _inverse(kept_BK, torch.stack(drawn).to(kept_BK.device)[:, None])
        return (place_B1 if ids_BK is None else ids_BK.gather(1, place_B1))[:, 0]

    def _kept(self, scores_BV: Tensor) -> tuple[Tensor, Tensor | None]:
        """Probabilities that may be drawn, not normalized, and their ids; ``None`` where all are in order."""
        size = scores_BV.shape[1]
        if self.top_k == 0 and self.top_p == 1:
            return scores_BV.softmax(-1), None
        if 0 < self.top_k < size:
            best_BK, ids_BK = scores_BV.topk(self.top_k)
        else:
            best_BK, ids_BK = scores_BV.sort(descending=True, stable=True)
        probabilities_BK = best_BK.softmax(-1)
        if self.top_p < 1:
            before_BK = probabilities_BK.cumsum(-1) - probabilities_BK
            probabilities_BK = probabilities_BK.masked_fill(before_BK >= self.top_p, 0.0)
        return probabilities_BK, ids_BK


def _inverse(weights_BK: Tensor, drawn_B1: Tensor) -> Tensor:
    """(B, 1) places drawn in proportion to the weights: where their running sum passes a number in [0, 1)."""
    sums_BK = weights_BK.cumsum(-1)
    total_B1 = sums_BK[:, -1:]
    below_B1 = torch.minimum(drawn_B1 * total_B1, torch.nextafter(total_B1, torch.zeros_like(total_B1)))
    return torch.searchsorted(sums_BK, below_B1, right=True)
