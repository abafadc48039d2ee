"""Linformer: keys and values are projected along the sequence to a fixed number of slots.

    out = softmax(q (E K)^T scale) (F V),  E, F: rank x length

Every key goes into every slot, so that there is no causal form and no cache. Tokens of a shorter input use the first
columns of E and F, as if zeros followed them; padding counts for nothing, on either side.
Wang et al. 2020, "Linformer", section 4, equation 7, arXiv:2006.04768. ``share`` has two of its ways of sharing; the
third, one E for all layers, would tie weights of different layers and is left out.
Cost for T tokens: 4 T D rank multiply-adds instead of 2 T^2 D, and 2 length rank parameters a layer (times N where
heads don't share).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.call import Call
from zoo.nn.alignment import Alignment

__all__ = ["Linformer"]


@final
class Linformer(HeadedAttention):
    """Softmax attention over slots; order is built in."""

    # The length is that of the layer's own sequence, so that nothing is known of another one's.
    offers = frozenset({"bidirectional", "padding", "rotate"})
    ordered = True
    length: int

    @dataclasses.dataclass(kw_only=True)
    class Config(HeadedAttention.Config):
        """Knobs of the Linformer."""

        rank: int = 128
        """Slots that the keys and values of a sequence are projected to."""
        share: Literal["heads", "keys_values", "none"] = "heads"
        """``heads``: one E and one F for all heads; ``keys_values``: these are one; ``none``: each head has its own."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.length is None:
            raise ValueError("linformer needs to know the most tokens there can be; give its parent a length")
        if config.rank < 1:
            raise ValueError(f"rank must be at least 1, got {config.rank}")
        heads = self.heads if config.share == "none" else 1
        self.key_slots = nn.Parameter(torch.empty(heads, config.rank, self.length))
        if config.share != "keys_values":
            self.value_slots = nn.Parameter(torch.empty(heads, config.rank, self.length))

    def initial(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Normal, so that a sequence of full length has slots as large as its tokens."""
        parameter.normal_(0.0, parameter.shape[-1] ** -0.5, generator=generator)

    def attend(self, q_BNTH: Tensor, k_BNSH: Tensor, v_BNSV: Tensor, call: Call) -> Tensor:
        """(B, N, T, V).

        Raises:
            ValueError: more tokens than the length.
        """
        tokens = k_BNSH.shape[2]
        if tokens > self.length:
            raise ValueError(f"{tokens} tokens, linformer was made for {self.length}; raise the length")
        call.valid_B1S1(k_BNSH)
        aligned = Alignment(call.mask.valid_BS)
        k_BNRH = self._slots(self.key_slots, aligned, k_BNSH)
        v_BNRV = self._slots(getattr(self, "value_slots", self.key_slots), aligned, v_BNSV)
        weights_BNTR = call.scores(q_BNTH, k_BNRH).softmax(-1).to(v_BNRV.dtype)
        return F.dropout(weights_BNTR, self.dropout, self.training) @ v_BNRV

    def _slots(self, table_NRL: Tensor, aligned: Alignment, x_BNSH: Tensor) -> Tensor:
        """(B, N, R, H) sums over the tokens, each with the column of its place among them."""
        x_BSNH = aligned.front(x_BNSH.transpose(1, 2).flatten(2)).unflatten(2, (x_BNSH.shape[1], -1))
        return table_NRL[..., : x_BNSH.shape[2]] @ x_BSNH.transpose(1, 2)
