"""Based's linear attention: the second-order Taylor polynomial of exp as a kernel, over small queries and keys.

    weight[t, s] = 1 + x + x^2 / 2,  x = scale q_t^T k_s;  out_t = sum of weight[t, s] v_s / sum of weight[t, s]
    phi(x) = [1, x, x_i x_i / sqrt(2), x_i x_j (i < j)],  phi(q)^T phi(k) = 1 + q^T k + (q^T k)^2 / 2

The polynomial is at least 1/2, so that a weight is never negative.
Arora et al. 2024, "Simple linear attention language models balance the recall-throughput tradeoff", section 4,
arXiv:2402.18668, who use it beside a sliding window of 64; a list of both under ``attention`` takes them in turn.
Cost for T tokens: with F = 1 + H + H (H + 1) / 2 features (153 for H = 16), 2 T N F V multiply-adds for the states
and, where causal, T N C (F + V) more inside chunks of C = 64. A cache holds F V + F numbers a key/value head. There
are no weights to drop.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.nn.kernel_attention import OFFERS, kernel_attention

__all__ = ["Based"]


@final
class Based(HeadedAttention):
    """Queries and keys are small, values of width / heads as usual; rotation acts on what is multiplied."""

    offers = OFFERS | {"rotate"}
    grouped = True
    keeps_keys = False

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of Based."""

        size: int | None = 16
        """Elements H of a query or key; null means width / heads. Features grow with its square."""

    def __init__(self, config: Any, *, dim: int, heads: int, **parent: Any) -> None:
        if dim % heads:
            raise ValueError(f"width {dim} is not divisible by {heads} heads")
        super().__init__(config, dim=dim, heads=heads, value_size=dim // heads, **parent)

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), the features in float32 or wider."""
        wide = torch.promote_types(q_BNTH.dtype, torch.float32)
        q_BNTF, k_BGSF = _features(q_BNTH.to(wide) * call.scale), _features(k_BGSH.to(wide))
        return kernel_attention(q_BNTF, k_BGSF, v_BGSV, call)


def _features(x_BNTH: Tensor) -> Tensor:
    """(B, N, T, F): each pair of elements once, so that half of their products need no room."""
    pairs = [x_BNTH[..., step:] * x_BNTH[..., :-step] for step in range(1, x_BNTH.shape[-1])]
    return torch.cat([torch.ones_like(x_BNTH[..., :1]), x_BNTH, x_BNTH.square() * 0.5**0.5, *pairs], -1)
