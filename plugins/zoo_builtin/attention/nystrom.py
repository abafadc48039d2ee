"""Nystrom attention: softmax attention through landmarks, means of neighbouring queries and keys.

    out = softmax(Q K~^T) pinv(softmax(Q~ K~^T)) softmax(Q~ K^T) V + convolution(V),  scores times scale

Q~ and K~ are means over ``landmarks`` segments of a row's tokens, as equal as they can be; padding is in none. The
pseudo-inverse is six steps of an iteration. A row with no more tokens than landmarks gets softmax attention exactly.
Means take in all tokens, so that there is no causal form and no cache. There are no weights to drop.
Xiong et al. 2021, "Nystromformer", section 3, arXiv:2102.03902. The iteration starts from each head's own column
sums, which their code takes over a whole batch, where rows would depend on each other.
Cost for T tokens and m landmarks: 7 T m D multiply-adds, and 24 N m^3 for the iteration, instead of 2 T^2 D.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call, no_autocast

__all__ = ["Nystrom"]


@final
class Nystrom(HeadedAttention):
    """Softmax attention of low rank; order is built in, through the segments and the convolution."""

    offers = frozenset({"bidirectional", "padding", "rotate"})
    ordered = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of Nystrom attention."""

        landmarks: int = 64
        """Segments m whose means stand for the tokens."""
        iterations: int = 6
        """Steps of the iteration for the pseudo-inverse."""
        convolution: int | None = 33
        """Tokens that the depthwise convolution of the values beside it reaches, an odd number; null means none."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.landmarks < 1 or config.iterations < 1:
            raise ValueError(
                f"landmarks and iterations must be at least 1, got {config.landmarks} and {config.iterations}"
            )
        if config.convolution is not None:
            if config.convolution < 1 or config.convolution % 2 == 0:
                raise ValueError(f"convolution must reach an odd number of tokens, got {config.convolution}")
            self.convolution = nn.Parameter(torch.empty(self.heads, 1, config.convolution, 1))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Normal, so that the convolution's output is as large as the values."""
        parameter.normal_(0.0, parameter.shape[2] ** -0.5, generator=generator)

    def attend(self, q_BNTH: Tensor, k_BNTH: Tensor, v_BNTV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), computed in float32 or wider."""
        wide = torch.promote_types(q_BNTH.dtype, torch.float32)
        valid_B1T1 = call.valid_B1S1(k_BNTH)
        q, k, v = (x.to(wide).masked_fill(~valid_B1T1, 0.0) for x in (q_BNTH, k_BNTH, v_BNTV))
        with no_autocast(q.device):
            out_BNTV = self._approximated(q, k, v, valid_B1T1[:, 0, :, 0], call)
            if self.config.convolution is not None:
                reach = self.config.convolution // 2
                kernel = self.convolution.to(wide)
                out_BNTV = out_BNTV + F.conv2d(v, kernel, padding=(reach, 0), groups=kernel.shape[0])
        return out_BNTV.to(v_BNTV.dtype)

    def _approximated(self, q: Tensor, k: Tensor, v: Tensor, valid_BT: Tensor, call: Call) -> Tensor:
        """(B, N, T, V) from tokens whose padding is 0."""
        means_B1MT, used_B11M = _segments(valid_BT, self.config.landmarks, q.dtype)
        k_BNMH = means_B1MT @ k
        near_BNTM = _softmax(call.scores(q, k_BNMH), used_B11M)
        v_BNMV = means_B1MT @ v  # for rows in which each token is a landmark of its own
        if valid_BT.shape[1] > self.config.landmarks:
            q_BNMH = means_B1MT @ q
            middle_BNMM = _softmax(call.scores(q_BNMH, k_BNMH), used_B11M)
            far_BNMT = _softmax(call.scores(q_BNMH, k), valid_BT[:, None, None])
            is_exact_B = valid_BT.sum(1) <= self.config.landmarks
            mixed_BNMV = self._inverse(middle_BNMM) @ (far_BNMT @ v)
            v_BNMV = torch.where(is_exact_B[:, None, None, None], v_BNMV, mixed_BNMV)
        return near_BNTM @ v_BNMV

    def _inverse(self, a_BNMM: Tensor) -> Tensor:
        """Razavi et al. 2014, third order, from the transpose over its largest sums of rows (1) and of columns."""
        z_BNMM = a_BNMM.mT / a_BNMM.sum(-2).amax(-1)[..., None, None]
        for _ in range(self.config.iterations):
            az = a_BNMM @ z_BNMM
            z_BNMM = (13 * z_BNMM - z_BNMM @ (15 * az - az @ (7 * az - az @ az))) / 4
        return z_BNMM


def _segments(valid_BT: Tensor, landmarks: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(B, 1, M, T) the matrix that takes the means, and (B, 1, 1, M) bool which landmarks there are."""
    count_B1 = valid_BT.sum(1, keepdim=True)
    used_B1 = count_B1.clamp(max=landmarks)
    number_M = torch.arange(landmarks, device=valid_BT.device)
    # Token p of n is in segment floor(p m / n), said without the division.
    share_B1T = ((valid_BT.cumsum(1) - 1) * used_B1)[:, None]
    begin_BM1 = (number_M * count_B1)[..., None]
    member_BMT = (share_B1T >= begin_BM1) & (share_B1T < begin_BM1 + count_B1[..., None]) & valid_BT[:, None]
    means_BMT = member_BMT.to(dtype) / member_BMT.sum(-1, keepdim=True).clamp(min=1)
    return means_BMT[:, None], (number_M < used_B1)[:, None, None]


def _softmax(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1)
