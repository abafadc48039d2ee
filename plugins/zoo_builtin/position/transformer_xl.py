"""Scores by content and by offset, each with a bias of its own: sinusoids of offsets through a learned projection.

    score(t, s) = ((q_t + u) k_s^T + (q_t + v) (W_R R[p_t - p_s])^T) / sqrt(H)

Acts on scores, reads queries and keys. R are the sines, then the cosines, of an offset at the wavelengths of
``sinusoidal``; u, v and W_R belong to each head. They are shared by all layers that share the scheme, as the paper's
code shares u and v; W_R is there each layer's own (``position`` as a list). Each query meets the vectors of all
offsets once, and its keys look the products up; offsets end at a reach, beyond which they are the last.
Dai et al. 2019, "Transformer-XL", section 3.3, arXiv:1901.02860; its memory of earlier segments is another matter.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call, no_autocast

__all__ = ["TransformerXL"]


@final
class TransformerXL(Position):
    """Relative attention with global biases."""

    relative = True
    content = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Position.Config):
        """Knobs of the offsets."""

        reach: int | None = None
        """Greatest offset that is told from the next (the code's clamp_len); null means that of the longest input."""
        theta: float = 10000.0
        """Base of the wavelengths."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.reach is None and self.length is None:
            raise ValueError("transformer_xl must know how far offsets go; set its reach, or architecture.max_length")
        if self.dim % 2 or (config.reach or 1) < 1:
            raise ValueError(f"transformer_xl needs an even width and a reach of 1, got {self.dim} and {config.reach}")
        self.reach = (self.length or 2) - 1 if config.reach is None else config.reach
        self.project = nn.Linear(self.dim, self.heads * self.size, bias=False)
        self.u, self.v = (nn.Parameter(torch.empty(self.heads, self.size)) for _ in "uv")

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Small, as the published code has u and v."""
        parameter.normal_(0.0, 0.02, generator=generator)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> tuple[Tensor, Tensor]:
        """(N, H, R) W_R R of all offsets in float32 or wider, and (1|B, T, S) which of them: int64."""
        least = 0 if self.causal else -self.reach  # keys ahead in a causal model, in a prefix, are as near as can be
        offset_BTS = (at_BTA[:, :, None, 0] - keys_BSA[:, None, :, 0]).clamp(least, self.reach)
        pair = torch.arange(self.dim // 2, dtype=torch.float64, device=at_BTA.device)
        offset_R1 = torch.arange(least, self.reach + 1, dtype=torch.float64, device=at_BTA.device)[:, None]
        phase = offset_R1 * self.config.theta ** (-2 * pair / self.dim)
        wide = torch.promote_types(self.project.weight.dtype, torch.float32)
        with no_autocast(at_BTA.device):
            vectors = F.linear(torch.cat([phase.sin(), phase.cos()], -1).to(wide), self.project.weight.to(wide))
        return vectors.unflatten(-1, (self.heads, self.size)).permute(1, 2, 0), offset_BTS - least

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: tuple[Tensor, Tensor]) -> Tensor:
        """(B, N, T, S) in float32 or wider, scaled like the scores: all but q k^T."""
        vectors_NHR, offset_BTS = prepared
        wide = torch.promote_types(q_BNTH.dtype, torch.float32)
        u_N1H, v_N1H = self.u.to(wide)[:, None], self.v.to(wide)[:, None]
        with no_autocast(q_BNTH.device):
            by_offset_BNTR = (q_BNTH.to(wide) + v_N1H) @ vectors_NHR.to(wide)
            by_key_BN1S = u_N1H @ k_BNSH.to(wide).transpose(-1, -2)
        by_pair_BNTS = by_offset_BNTR.gather(-1, offset_BTS[:, None].expand(*q_BNTH.shape[:3], -1))
        return (by_pair_BNTS + by_key_BN1S) * call.scale
