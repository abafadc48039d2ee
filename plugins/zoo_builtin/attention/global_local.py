"""Attention in a window, and the first ``tokens`` tokens of a document, which see all and are seen by all.

    s is seen by t    if |t - s| < window, or s < tokens, or t < tokens       (and s <= t in a causal model)
    a global t uses   queries, keys and values of projections of its own, over all s

In an encoder the class token is such a token, or a question before a text. In a causal model later tokens see the
first ones, wherever they are, and these see nothing more than before.
Beltagy et al. 2020, "Longformer", section 3.1 "Global attention" and "Linear projections for global attention",
arXiv:2004.05150 (there half the window lies on each side, so its 512 is our 257).
Cost for T queries: that of ``sliding_window`` with ``tokens`` keys more for each, 2 T tokens D multiply-adds for the
global queries and three projections more; the cache keeps all keys, twice.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.contracts.values.pattern import Pattern, aligned, around, beside

__all__ = ["GlobalLocal"]


@dataclasses.dataclass(frozen=True)
class WindowAndFirst(Pattern):
    """Near pairs, and all pairs with one of the first tokens."""

    window: int
    tokens: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """Near, or either is global."""
        near = (key > query - self.window) & (key < query + self.window)
        return near | (key < self.tokens) | (query < self.tokens)

    def blocks(
        self, begin: int, end: int, *, keys: int, ahead: bool, device: torch.device
    ) -> tuple[Tensor, Tensor] | None:
        """Blocks of half a window, each with the first tokens beside its near ones."""
        query_LQ = aligned(begin, end, (self.window + 1) // 2, device)
        near_LK = around(query_LQ, self.window - 1, self.window - 1 if ahead else 0)
        return query_LQ, beside(near_LK, torch.arange(self.tokens, device=device))

    def seeing_all(self) -> int:
        """The first tokens."""
        return self.tokens


@dataclasses.dataclass(frozen=True)
class FirstQueries(Pattern):
    """All keys for the first queries, none for the others."""

    tokens: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """By the query alone."""
        return (query < self.tokens) & (key >= 0)

    def blocks(
        self, begin: int, end: int, *, keys: int, ahead: bool, device: torch.device
    ) -> tuple[Tensor, Tensor] | None:
        """One block of these queries; the others are in none."""
        last = max(min(end, self.tokens), begin + 1)
        return (
            torch.arange(begin, last, device=device)[None],
            torch.arange(keys if ahead else min(keys, last), device=device)[None],
        )


@final
class GlobalLocal(HeadedAttention):
    """Scaled dot-product attention in a window, with global tokens that are projected apart."""

    offers = HeadedAttention.offers - {"cross"}  # the slots of another sequence aren't those of the queries
    kernels = ("eager", "sdpa")
    grouped = True
    ordered = True  # the first tokens are projected apart, so that it isn't the same function of permuted ones

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of global and local attention."""

        window: int = 257
        """Keys that a query sees on one side, its own included."""
        tokens: int = 1
        """How many of a document's first tokens are global."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.window < 1 or config.tokens < 1:
            raise ValueError(f"window and tokens must be at least 1, got {config.window} and {config.tokens}")
        self.pattern = WindowAndFirst(config.window, config.tokens)
        self.global_query = nn.Linear(self.dim, self.heads * self.score_size, bias=config.bias)
        self.global_key = nn.Linear(self.dim, self.kv_heads * self.score_size, bias=config.bias)
        self.global_value = nn.Linear(self.dim, self.kv_heads * self.value_size, bias=config.bias)

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V): global queries with their own keys and values, the others as ever."""
        tokens = self.config.tokens
        global_q_BNTH = call.place.rotate(self._split(self.global_query(call.x_BTD), self.score_size))
        global_k_BGSH, global_v_BGSV = self._global_heads(call)
        place_BT, _ = call.mask.places(q_BNTH.device)
        is_global = ((place_BT >= 0) & (place_BT < tokens))[:, None, :, None]
        if call.kernel == "sdpa":
            first = call.narrowed(FirstQueries(tokens)).sdpa(global_q_BNTH, global_k_BGSH, global_v_BGSV)
            return torch.where(is_global, first, call.sdpa(q_BNTH, k_BGSH, v_BGSV))
        scores = call.scores(q_BNTH, k_BGSH)
        weights = call.softmax(torch.where(is_global, call.scores(global_q_BNTH, global_k_BGSH), scores))
        return torch.where(is_global, call.mix(weights, global_v_BGSV), call.mix(weights, v_BGSV))

    def _global_heads(self, call: Call) -> tuple[Tensor, Tensor]:
        k_BGSH = call.place.rotate_keys(self._split(self.global_key(call.x_BTD), self.score_size))
        v_BGSV = self._split(self.global_value(call.x_BTD), self.value_size)
        if call.cache is None:
            return k_BGSH, v_BGSV
        return call.cache.append("global_k", k_BGSH, 2), call.cache.append("global_v", v_BGSV, 2)
