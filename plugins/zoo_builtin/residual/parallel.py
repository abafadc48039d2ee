"""All branches read the same stream and are added to it together, instead of one after the other.

    X <- X + attention(Norm_1(X)) + feed_forward(Norm_2(X))                   (``shared_norm``: one norm for all)

The stack is half as deep in sequential steps. Wang and Komatsuzaki 2021, "GPT-J-6B" (one norm);
Black et al. 2022, "GPT-NeoX-20B", section 2.1, arXiv:2204.06745 (two norms); Falcon (one).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

from torch import Tensor, nn

from zoo.contracts.residual import Branch, Residual

__all__ = ["Parallel"]


@final
class Parallel(Residual):
    """The parallel arrangement, pre-norm; the stack ends with a norm of its own."""

    final_norm = True

    @dataclasses.dataclass(kw_only=True)
    class Config(Residual.Config):
        """Knobs of the parallel arrangement."""

        shared_norm: bool = False
        """Whether all branches read the output of one norm (GPT-J, Falcon), or each of its own (GPT-NeoX)."""

    def __init__(self, config: Any, *, norm: Callable[..., nn.Module], branches: int, **parent: Any) -> None:
        norms = 1 if config.shared_norm else branches
        super().__init__(config, norm=norm, branches=branches, norms=norms, **parent)

    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        """(B, T, D) the stream after the block.

        Raises:
            ValueError: another number of branches than it was made for.
        """
        normed = [norm(x_BTD) for norm in self.norms]
        if self.config.shared_norm:
            normed *= self.branches
        out_BTD = x_BTD
        for index, (normed_BTD, branch) in enumerate(zip(normed, branches, strict=True)):
            out_BTD = out_BTD + self.contribution(index, branch(normed_BTD))
        return out_BTD
