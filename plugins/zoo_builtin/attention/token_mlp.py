"""Token mixing of the MLP-Mixer: an MLP over the tokens, the same for each element of the width.

    out = W_2 gelu(W_1 X + b_1) + b_2,  W_1: hidden x length, W_2: length x hidden, X: tokens x width

A shorter input uses the first rows and columns, as if zeros followed it; padding counts for nothing, on either side.
Under a causal mask hidden unit h belongs to token floor(h length / hidden): it reads that token and earlier ones, and
only that token and later ones read it, so that both matrices are lower triangular where hidden = length (the masks of
Germain et al. 2015, "MADE", arXiv:1502.03509). Order is built in. There is no cache, as every step needs every token.
Tolstikhin et al. 2021, "MLP-Mixer", section 2, equation 1, arXiv:2105.01601.
Cost for T tokens: T D hidden multiply-adds for each matrix, and 2 length hidden parameters, whatever the heads.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.initialization import branch_output
from zoo.nn.alignment import Alignment

__all__ = ["TokenMlp"]


@final
class TokenMlp(Attention):
    """A control: mixing that doesn't look at what it mixes."""

    offers = frozenset({"causal", "bidirectional", "padding"})
    ordered = True
    length: int

    @dataclasses.dataclass(kw_only=True)
    class Config(Attention.Config):
        """Knobs of the token mixing."""

        hidden: int | None = None
        """Hidden units; null means half the width, as published, and at least one for each token."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.length is None:
            raise ValueError("token_mlp needs to know the most tokens there can be; give its parent a length")
        self.hidden = max(self.dim // 2, self.length) if config.hidden is None else config.hidden
        if self.hidden < 1:
            raise ValueError(f"hidden must be at least 1, got {self.hidden}")
        self.up = nn.Linear(self.length, self.hidden)
        self.down = branch_output(nn.Linear(self.hidden, self.length))

    def forward(
        self,
        x_BTD: Tensor,
        *,
        context_BSD: Tensor | None = None,
        mask: Mask,
        place: Place = NOWHERE,
        cache: LayerCache | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        """(B, T, D) from (B, T, D).

        Raises:
            ValueError: more tokens than the length, or a causal mask with fewer hidden units than that.
        """
        self.refuse(mask, cross=context_BSD is not None, cached=cache is not None)
        tokens = x_BTD.shape[1]
        if tokens > self.length:
            raise ValueError(f"{tokens} tokens, token_mlp was made for {self.length}; raise the length")
        aligned = Alignment(mask.valid_BS)
        up, down = self.up.weight[:, :tokens], self.down.weight[:tokens]
        if mask.causal:
            up, down = self._triangular(up, down)
        hidden_BHD = F.gelu(up @ aligned.front(x_BTD) + self.up.bias[: len(up), None])
        return aligned.back(down @ hidden_BHD + self.down.bias[:tokens, None])

    def _triangular(self, up_HT: Tensor, down_TH: Tensor) -> tuple[Tensor, Tensor]:
        """The weights of the hidden units of these tokens, 0 where a unit is earlier than what it reads."""
        if self.hidden < self.length:
            raise ValueError(
                f"token_mlp with {self.hidden} hidden units can't be causal over {self.length} tokens, "
                "which need one each; raise hidden, or leave it null"
            )
        tokens = up_HT.shape[1]
        units = -(-tokens * self.hidden // self.length)
        begin_T = torch.arange(tokens, device=up_HT.device) * self.hidden  # where a token's units begin,
        at_H = torch.arange(units, device=up_HT.device) * self.length  # both times the length
        up_HT = up_HT[:units].masked_fill(begin_T > at_H[:, None], 0.0)
        return up_HT, down_TH[:, :units].masked_fill(at_H >= begin_T[:, None] + self.hidden, 0.0)
