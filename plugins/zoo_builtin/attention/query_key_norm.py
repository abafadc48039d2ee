"""The queries and keys of each head are normalized before they are compared, so that scores can't run away.

    scores = scale * (gamma_q * rms(q)) (gamma_k * rms(k))^T                  rms(x) = x / sqrt(mean(x^2) + eps)
    scores = g * (q / |q|) (k / |k|)^T                                        with ``learned_scale``

The second is Henry et al. 2020, "Query-key normalization for transformers", arXiv:2010.04245, where one learned g is
all the scale there is; the first is the form of Qwen3 (Yang et al. 2025, section 2, arXiv:2505.09388),
with factors gamma of the head size, the same for all heads. Both act before a rotation, which changes no length.
Cost: that of grouped_query and some operations for each element of the queries and keys.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.nn.rms import normalized

__all__ = ["QueryKeyNorm"]


@final
class QueryKeyNorm(HeadedAttention):
    """Scaled dot-product attention between normalized queries and keys."""

    kernels = ("eager", "sdpa", "flex")
    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the norms."""

        eps: float = 1e-6
        """Added to the mean square of a query or key; the least length of one with ``learned_scale``."""
        learned_scale: bool = False
        """Whether vectors have length 1 and one learned factor scales their products, in place of RMS norms with
        factors for each element and a fixed scale."""
        initial_scale: float | None = None
        """What that factor begins with; null means log2(L^2 - L) for a length of L, 1,024 where there is no bound."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.learned_scale and config.scale is not None:
            raise ValueError(f"the scale is learned, so it can't be {config.scale} (scale); set initial_scale")
        if config.initial_scale is not None and not config.learned_scale:
            raise ValueError(f"initial_scale is {config.initial_scale}, but no scale is learned (learned_scale)")
        if config.learned_scale:
            self.scale = 1.0  # the learned one is in the queries, so that position schemes see it too
            self.learned_scale = nn.Parameter(torch.empty(1))
        else:
            self.query_norm = nn.RMSNorm(self.score_size, eps=config.eps)
            self.key_norm = nn.RMSNorm(self.score_size, eps=config.eps)

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """The learned scale begins so large that one key can have nearly all the weight, as published."""
        length = max(2, self.length or 1024)
        published = math.log2(length**2 - length)
        parameter.fill_(published if self.config.initial_scale is None else self.config.initial_scale)

    def normalize_query(self, q_BNTH: Tensor) -> Tensor:
        """(B, N, T, H)."""
        if not self.config.learned_scale:
            return normalized(q_BNTH, self.query_norm)
        wide = torch.promote_types(q_BNTH.dtype, torch.float32)
        return (self._unit(q_BNTH.to(wide)) * self.learned_scale.to(wide)).to(q_BNTH.dtype)

    def normalize_key(self, k_BGSH: Tensor) -> Tensor:
        """(B, G, S, H)."""
        if not self.config.learned_scale:
            return normalized(k_BGSH, self.key_norm)
        return self._unit(k_BGSH.to(torch.promote_types(k_BGSH.dtype, torch.float32))).to(k_BGSH.dtype)

    def _unit(self, x_BNTH: Tensor) -> Tensor:
        return F.normalize(x_BNTH, dim=-1, eps=self.config.eps)

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), eager or fused."""
        return call.attention(q_BNTH, k_BGSH, v_BGSV)
