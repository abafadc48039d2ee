"""Attention to near blocks, to the first blocks, and to a few random ones: a sparse graph with short paths.

    block i sees block j   if |i - j| <= near, or j < first, or i < first, or j is one of i's random blocks

The random blocks are r different ones of those that i doesn't see anyway, one from each r-th part of them: fixed by
the seed and the layer, the same for all heads and whatever else is in the batch. In a causal model they are drawn from
the blocks before i. In an open one they are drawn from all blocks that ``length`` tokens have, or, where no length is
bound, from the first 2^m, the least power of two above i; drawn blocks that aren't there are nobody's loss but i's.
Zaheer et al. 2020, "Big Bird", section 2 and appendix D, arXiv:2007.14062 (its window of 3 blocks is near: 1). There
each head draws its own, and in the authors' code the last block is global, too.
Cost for T queries: T block (2 near + 1 + first + random) D multiply-adds for the scores and as many for the mixture,
fused, and first * block queries over all keys; the cache keeps all keys.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.pattern import Pattern, aligned, around, beside

__all__ = ["BigBird"]


@dataclasses.dataclass(frozen=True)
class SparseGraph(Pattern):
    """Near, first and random blocks."""

    block: int
    near: int
    first: int
    random: int
    seed: int
    causal: bool
    count: int | None
    """Blocks that there can be."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """By the numbers of the blocks."""
        i, j = query // self.block, key // self.block
        allowed = ((j >= i - self.near) & (j <= i + self.near)) | (j < self.first) | (i < self.first)
        for chosen in self.chosen(i):
            allowed = allowed | (j == chosen)
        return allowed

    def chosen(self, i: Tensor) -> list[Tensor]:
        """The random blocks of blocks i, elementwise; -1 where there are too few to choose from."""
        before = (i - self.near - self.first).clamp(min=0)
        skipped = torch.maximum(i + self.near + 1, torch.full_like(i, self.first))
        others = before if self.causal else before + (self._blocks_of(i) - skipped).clamp(min=0)
        found = []
        for part in range(self.random):
            begin, end = others * part // self.random, others * (part + 1) // self.random
            drawn = begin + _hashed(i, self.seed, part) % (end - begin).clamp(min=1)
            block = torch.where(drawn < before, self.first + drawn, skipped + drawn - before)
            found.append(torch.where(end > begin, block, -1))
        return found

    def _blocks_of(self, i: Tensor) -> Tensor:
        if self.count is not None:
            return torch.full_like(i, self.count)
        powers = 2 ** torch.arange(40, device=i.device)
        return powers[torch.bucketize(i, powers, right=True)]

    def blocks(
        self, begin: int, end: int, *, keys: int, ahead: bool, device: torch.device
    ) -> tuple[Tensor, Tensor] | None:
        """Its own blocks, each with the near, first and random ones."""
        query_LQ = aligned(begin, end, self.block, device)
        step_K = torch.arange(self.block, device=device)
        key_LK = around(query_LQ, self.near * self.block, self.near * self.block if ahead else 0)
        key_LK = beside(key_LK, torch.arange(self.first * self.block, device=device))
        for chosen_L in self.chosen(query_LQ[:, 0] // self.block):
            key_LK = beside(key_LK, torch.where(chosen_L >= 0, chosen_L * self.block, -self.block)[:, None] + step_K)
        return query_LQ, key_LK

    def seeing_all(self) -> int:
        """The tokens of the first blocks."""
        return self.first * self.block


def _hashed(i: Tensor, seed: int, part: int) -> Tensor:
    """Integers from 0 to 2^32 that look random: two rounds of a multiplicative hash of (i, seed, part)."""
    low = 0xFFFFFFFF
    value = (i * 0x9E3779B1 + (seed * 0x85EBCA6B + part * 0xC2B2AE35) % (low + 1)) & low
    for _ in range(2):
        value = ((value ^ (value >> 16)) * 0x45D9F3B) & low
    return value ^ (value >> 16)


@final
class BigBird(HeadedAttention):
    """Scaled dot-product attention along a sparse random graph of blocks."""

    offers = HeadedAttention.offers - {"cross"}  # the slots of another sequence aren't those of the queries
    kernels = ("eager", "sdpa", "flex")
    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the graph."""

        block: int = 64
        """Tokens in a block."""
        near: int = 1
        """Blocks on each side that a block sees beside itself."""
        first: int = 1
        """Blocks at the beginning of a document that see all and are seen by all."""
        random: int = 3
        """Random blocks that a block sees."""
        seed: int = 0
        """Another seed draws others."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        for name, least in (("block", 1), ("near", 0), ("first", 0), ("random", 0)):
            if getattr(config, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(config, name)}")

    def narrow(self, mask: Mask) -> Mask:
        """The mask with this layer's graph in it."""
        config = self.config
        graph = SparseGraph(
            block=config.block,
            near=config.near,
            first=config.first,
            random=config.random,
            seed=config.seed * 1009 + self.layer,
            causal=mask.causal,
            count=None if self.length is None else -(-self.length // config.block),
        )
        return mask.narrow(pattern=graph)

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), eager or fused; neither repeats the keys or values."""
        return call.attention(q_BNTH, k_BGSH, v_BGSV)
