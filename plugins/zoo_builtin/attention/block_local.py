"""Attention in blocks: a token sees its own block and ``before`` earlier ones, in an open mask as many later ones.

    weights[t, s] = softmax over the s with |floor(t / block) - floor(s / block)| <= before    (and s <= t if causal)

Blocks begin with the document, wherever it stands in its row. Tokens at a block's edge see less than those in a
sliding window would; with ``before: 0`` blocks never meet.
Liu et al. 2018, "Generating Wikipedia by summarizing long sequences", section 4.2.4 "Local attention",
arXiv:1801.10198 (before: 0); Kitaev et al. 2020, "Reformer", whose local layers have before: 1, arXiv:2001.04451.
Cost for T queries: T block (1 + before) D multiply-adds (1 + 2 before where the mask is open) for the scores and as
many for the mixture, fused; while generating the cache keeps block (1 + before) keys.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.contracts.values.pattern import Pattern, aligned, around

__all__ = ["BlockLocal"]


@dataclasses.dataclass(frozen=True)
class NearBlocks(Pattern):
    """Pairs whose blocks are at most ``before`` apart."""

    block: int
    before: int

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """By the numbers of the blocks."""
        own, other = query // self.block, key // self.block
        return (other >= own - self.before) & (other <= own + self.before)

    def blocks(
        self, begin: int, end: int, *, keys: int, ahead: bool, device: torch.device
    ) -> tuple[Tensor, Tensor] | None:
        """Its own blocks."""
        query_LQ = aligned(begin, end, self.block, device)
        reach = self.before * self.block
        return query_LQ, around(query_LQ, reach, reach if ahead else 0)

    def keep(self) -> int:
        """All that the last token of a block sees."""
        return (self.before + 1) * self.block


@final
class BlockLocal(HeadedAttention):
    """Scaled dot-product attention in fixed blocks and their neighbours."""

    offers = HeadedAttention.offers - {"cross"}  # the slots of another sequence aren't those of the queries
    kernels = ("eager", "sdpa", "flex")
    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of block-local attention."""

        block: int = 128
        """Tokens in a block."""
        before: int = 1
        """Earlier blocks that a token sees beside its own, and later ones where the mask is open."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.block < 1 or config.before < 0:
            raise ValueError(f"block must be at least 1 and before at least 0, got {config.block} and {config.before}")
        self.pattern = NearBlocks(config.block, config.before)

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), eager or fused; neither repeats the keys or values."""
        return call.attention(q_BNTH, k_BGSH, v_BGSV)
