"""Rows of tokens and padding with the tokens moved to the front, in their order, for mixers that count tokens.

Dimension legend: B batch, T slots, X any size.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Alignment:
    """Where each row's tokens go, and back; without padding nothing moves.

    Args:
        valid_BT: (B, T) bool, False is padding; ``None`` for none.
    """

    def __init__(self, valid_BT: Tensor | None) -> None:
        self.valid_BT = valid_BT
        if valid_BT is not None:
            self.order_BT = torch.argsort(valid_BT, dim=1, descending=True, stable=True)
            self.back_BT = torch.argsort(self.order_BT, dim=1)
            self.filled_BT = valid_BT.gather(1, self.order_BT)

    def front(self, x_BTX: Tensor) -> Tensor:
        """(B, T, X) with the tokens of each row in front, and zeros behind them."""
        if self.valid_BT is None:
            return x_BTX
        return _taken(x_BTX, self.order_BT).masked_fill(~self.filled_BT[..., None], 0.0)

    def back(self, x_BTX: Tensor) -> Tensor:
        """(B, T, X) with the tokens in their slots again, and zeros in the padding."""
        if self.valid_BT is None:
            return x_BTX
        return _taken(x_BTX, self.back_BT).masked_fill(~self.valid_BT[..., None], 0.0)


def _taken(x_BTX: Tensor, index_BT: Tensor) -> Tensor:
    return x_BTX.gather(1, index_BT[..., None].expand_as(x_BTX))
