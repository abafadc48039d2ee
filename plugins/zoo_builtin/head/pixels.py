"""The pixels of a patch from a hidden state, for models that predict patches.

    patch = W h + b

He et al. 2022, arXiv:2111.06377 (hidden patches); El-Nouby et al. 2024, arXiv:2401.08541 (the next patch).
"""

from __future__ import annotations

from typing import Any, final

from torch import Tensor, nn

from zoo.contracts.head import Head

__all__ = ["Pixels"]


@final
class Pixels(Head):
    """A linear layer from the width to the numbers of a patch."""

    offers = frozenset({"pixels"})
    takes = frozenset({"channels"})

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        patch = self.embedding.patch_size
        if patch is None or self.sizes.channels is None:
            raise ValueError(f"a head for pixels needs an embedding of patches, not {type(self.embedding).__name__}")
        self.project = nn.Linear(self.dim, self.sizes.channels * patch[0] * patch[1])

    def forward(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """(B, patches, P) pixels by the hidden states (B, T, D) of the patches; tokens in front have none."""
        del valid_BT
        return self.project(hidden_BTD[:, self.embedding.extra :])
