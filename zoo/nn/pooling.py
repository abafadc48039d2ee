"""One vector for a whole sequence.

Dimension legend: B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn


class Pooler(nn.Module):
    """tanh(W h + b) of one hidden state: BERT's summary of its input."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, hidden_BD: Tensor) -> Tensor:
        """(B, D) from (B, D)."""
        return torch.tanh(self.dense(hidden_BD))


def pooled(
    hidden_BTD: Tensor, valid_BT: Tensor | None, how: Literal["first", "mean", "last"], *, extra: int = 0
) -> Tensor:
    """(B, D) the first or last token's hidden state, or the mean over the tokens that stand for an input.

    Args:
        hidden_BTD: hidden states.
        valid_BT: False is padding, which the mean and the last leave out; a row of padding alone gives 0.
        how: ``first``, ``mean`` or ``last``.
        extra: tokens in front that stand for no input, which the mean leaves out.
    """
    if valid_BT is None:
        if how == "mean":
            return hidden_BTD[:, extra:].mean(1)
        return hidden_BTD[:, 0 if how == "first" else -1]
    if how == "mean":
        weight_BT1 = valid_BT[:, extra:, None].to(hidden_BTD.dtype)
        return (hidden_BTD[:, extra:] * weight_BT1).sum(1) / weight_BT1.sum(1).clamp(min=1)
    place_BT = torch.arange(valid_BT.shape[1], device=valid_BT.device).expand_as(valid_BT)
    far = valid_BT.shape[1] if how == "first" else -1
    kept_BT = torch.where(valid_BT, place_BT, far)
    place_B = kept_BT.amin(1) if how == "first" else kept_BT.amax(1)
    chosen_BD = hidden_BTD[
        torch.arange(len(hidden_BTD), device=hidden_BTD.device), place_B.clamp(0, valid_BT.shape[1] - 1)
    ]
    return chosen_BD * valid_BT.any(1, keepdim=True)
