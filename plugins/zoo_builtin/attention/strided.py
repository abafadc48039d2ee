"""The Sparse Transformer's two patterns, each in two factors: near keys, and far ones at regular places.

    strided   near: |t - s| <= stride                          far: t - s a multiple of stride
    fixed     near: floor(t / stride) = floor(s / stride)      far: s mod stride >= stride - summary

With ``factors: layers`` even layers see the near keys and odd ones the far (a stack then reaches everything in two
layers); ``merged`` lets every layer see both. Strided suits data with a period (rows of an image, with its width as
stride), fixed suits text. The far keys of ``fixed`` needn't contain a token's own: the first ones may see nothing.
Layers count over the whole stack: in a list with other attentions, see that both factors get their turn.
Child et al. 2019, "Generating long sequences with sparse transformers", sections 4.3 and 5.1, arXiv:1904.10509.
Cost for T queries with a stride near sqrt(T): T sqrt(T) D multiply-adds, fused; strided and merged has no blocks in
which queries share their keys, and costs T^2. The cache of a near layer keeps stride + 1 keys, others keep all.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import torch
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.contracts.values.pattern import Pattern, aligned, around, beside

__all__ = ["Strided"]


@dataclasses.dataclass(frozen=True)
class StridedFactors(Pattern):
    """Keys up to ``stride`` away, keys at multiples of it, or both."""

    stride: int
    near: bool
    far: bool
    anchored = False

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """By the distance alone."""
        near = (key >= query - self.stride) & (key <= query + self.stride)
        far = query % self.stride == key % self.stride
        return near | far if self.near and self.far else near if self.near else far

    def blocks(
        self, begin: int, end: int, *, keys: int, ahead: bool, device: torch.device
    ) -> tuple[Tensor, Tensor] | None:
        """Near: blocks of half a stride. Far: the tokens of one remainder, all of them together."""
        if self.near and self.far:
            return None
        if self.near:
            query_LQ = aligned(begin, end, (self.stride + 1) // 2, device)
            return query_LQ, around(query_LQ, self.stride, self.stride if ahead else 0)
        remainder_L1 = torch.arange(self.stride, device=device)[:, None]
        first = begin // self.stride * self.stride
        query_LQ = remainder_L1 + torch.arange(first, end, self.stride, device=device)
        return query_LQ, remainder_L1 + torch.arange(0, keys if ahead else end, self.stride, device=device)

    def keep(self) -> int | None:
        """Those of the near layer."""
        return None if self.far else self.stride + 1


@dataclasses.dataclass(frozen=True)
class FixedFactors(Pattern):
    """Keys of the same block of ``stride``, the last ``summary`` keys of every block, or both."""

    stride: int
    summary: int
    near: bool
    far: bool

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        """By the block and the place in it."""
        near, far = query // self.stride == key // self.stride, key % self.stride >= self.stride - self.summary
        return near | far if self.near and self.far else near if self.near else far

    def blocks(
        self, begin: int, end: int, *, keys: int, ahead: bool, device: torch.device
    ) -> tuple[Tensor, Tensor] | None:
        """Near: its own blocks. Far: one block, all see the same keys. Both: blocks about as long as these keys."""
        last_L1 = torch.arange(0, keys if ahead else end, self.stride, device=device)[:, None]
        far_K = (last_L1 + torch.arange(self.stride - self.summary, self.stride, device=device)).flatten()
        if not self.near:
            return torch.arange(begin, end, device=device)[None], far_K[None]
        together = max(1, far_K.numel() // self.stride) if self.far else 1
        query_LQ = aligned(begin, end, together * self.stride, device)
        return query_LQ, beside(query_LQ, far_K) if self.far else query_LQ

    def keep(self) -> int | None:
        """Those of the near layer."""
        return None if self.far else self.stride


@final
class Strided(HeadedAttention):
    """Scaled dot-product attention to near and to regularly spaced far keys."""

    offers = HeadedAttention.offers - {"cross"}  # the slots of another sequence aren't those of the queries
    kernels = ("eager", "sdpa", "flex")
    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the Sparse Transformer."""

        pattern: Literal["strided", "fixed"] = "strided"
        """Where the far keys are: at multiples of the stride from the query, or at the end of each block."""
        stride: int = 128
        """l, near the root of the length."""
        summary: int = 8
        """c, keys at the end of a block that every later token sees; for fixed only."""
        factors: Literal["layers", "merged"] = "layers"
        """Near and far keys in turn, layer by layer, or both in each."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.stride < 1:
            raise ValueError(f"stride must be at least 1, got {config.stride}")
        if config.pattern == "fixed" and not 1 <= config.summary <= config.stride:
            raise ValueError(f"summary must be between 1 and the stride of {config.stride}, got {config.summary}")
        merged = config.factors == "merged"
        near, far = merged or self.layer % 2 == 0, merged or self.layer % 2 == 1
        self.pattern: Pattern = StridedFactors(config.stride, near, far)
        if config.pattern == "fixed":
            self.pattern = FixedFactors(config.stride, config.summary, near, far)

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), eager or fused; neither repeats the keys or values."""
        return call.attention(q_BNTH, k_BGSH, v_BGSV)
