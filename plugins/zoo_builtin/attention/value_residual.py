"""Each layer mixes its values with those of the first layer, which would be diluted otherwise.

    out_l = softmax(scale * q_l k_l^T + bias) (first v_0 + own v_l)           for the layers l after the first

Zhou et al. 2024, "Value residual learning" (ResFormer), section 3, arXiv:2410.17897; 0.5 and 0.5 fixed is its
identity ResFormer, learned its learnable one. "The first layer" is the first of this kind in the stack; where that
isn't the bottom layer, it mixes its values with themselves. Cross-attention has first values of its own.
Cost: that of grouped_query and S G V multiply-adds; the cache holds each layer's own values, nothing more.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call

__all__ = ["ValueResidual"]


@final
class ValueResidual(HeadedAttention):
    """Scaled dot-product attention whose values have a residual connection to the first layer's."""

    kernels = ("eager", "sdpa", "flex")
    grouped = True

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the mixture."""

        first: float = 0.5
        """Weight of the first layer's values, or what it begins with."""
        own: float = 0.5
        """Weight of the layer's own values, or what it begins with."""
        learned: bool = True
        """Whether each layer after the bottom one learns its two weights."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if config.learned and self.layer > 0:  # in the bottom layer nothing would use them
            self.shares = nn.Parameter(torch.empty(2))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """What the knobs say, in their order."""
        parameter.copy_(torch.tensor([self.config.first, self.config.own]))

    def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V), eager or fused."""
        v_BGSV = self._with_first(v_BGSV, call)
        return call.attention(q_BNTH, k_BGSH, v_BGSV)

    def _with_first(self, v_BGSV: Tensor, call: Call) -> Tensor:
        """The mixture; cached values of earlier tokens are in both."""
        name = f"value_residual.{call.kind}"
        first_BGSV = call.notes.get(name)
        if first_BGSV is None or self.layer == 0:
            call.notes.keep(name, v_BGSV)
            first_BGSV = v_BGSV
        if self.layer == 0:
            return v_BGSV
        if first_BGSV.shape != v_BGSV.shape:
            raise ValueError(
                f"layer {self.layer} has values {tuple(v_BGSV.shape)} and the first layer {tuple(first_BGSV.shape)}; "
                "give all value_residual layers the same kv_heads and size"
            )
        first, own = self.shares.unbind() if self.config.learned else (self.config.first, self.config.own)
        return (first * first_BGSV + own * v_BGSV).to(v_BGSV.dtype)
