"""Attention to every ``dilation``-th key near by: ``window`` of them on a side, in a field that many times as wide.

    weights[t, s] = softmax over the s with |t - s| < window * dilation and t - s a multiple of dilation

As many keys as in ``sliding_window``, from farther away; tokens whose distance isn't a multiple never meet in layers
of one dilation, so mix them: ``attention: [sliding_window, {name: dilated_window, dilation: 2}]``.
Beltagy et al. 2020, "Longformer", section 3.1 "Dilated sliding window", arXiv:2004.05150. There heads differ in their
dilation; here layers do.
Cost for T queries: that of ``sliding_window``, for the tokens of one remainder are a sequence with a plain window;
while generating the cache keeps (window - 1) * dilation + 1 keys.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.contracts.values.pattern import Pattern, around

__all__ = ["DilatedWindow"]


@dataclasses.dataclass(frozen=True)
class Dilated(Pattern):
    """Distances that are multiples of the dilation, fewer than ``window`` of them away."""

    window: int
    dilation: int
    anchored = False

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """By the distance alone."""
        reach = self.window * self.dilation
        near = (key > query - reach) & (key < query + reach)
        return near & (query % self.dilation == key % self.dilation)

    def blocks(
        self, begin: int, end: int, *, keys: int, ahead: bool, device: torch.device
    ) -> tuple[Tensor, Tensor] | None:
        """Blocks of half a window in each of the sequences that the remainders are."""
        size = (self.window + 1) // 2
        first_L = torch.arange(begin, end, self.dilation * size, device=device)
        first_L = (first_L[:, None] + torch.arange(self.dilation, device=device)).flatten()
        query_LQ = first_L[:, None] + self.dilation * torch.arange(size, device=device)
        return query_LQ, around(query_LQ, self.window - 1, self.window - 1 if ahead else 0, self.dilation)

    def keep(self) -> int:
        """Up to the farthest key."""
        return (self.window - 1) * self.dilation + 1


@final
class DilatedWindow(HeadedAttention):
    """Scaled dot-product attention in a window with gaps."""

    offers = HeadedAttention.offers - {"cross"}  # the slots of another sequence aren't those of the queries
    kernels = ("eager", "sdpa", "flex")
    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the dilated window."""

        window: int = 128
        """Keys that a query sees on one side, its own included."""
        dilation: int = 2
        """Slots from one of these keys to the next; 1 is sliding_window."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.window < 1 or config.dilation < 1:
            raise ValueError(f"window and dilation must be at least 1, got {config.window} and {config.dilation}")
        self.pattern = Dilated(config.window, config.dilation)

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), eager or fused; neither repeats the keys or values."""
        return call.attention(q_BNTH, k_BGSH, v_BGSV)
