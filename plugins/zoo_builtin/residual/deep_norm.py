"""Post-norm with more weight on the stream and smaller initial branches, so that a thousand layers can be trained.

    X <- Norm(alpha X + branch(X)),      initial weights of branches times beta, but queries and keys

    stack                    alpha                     beta
    encoder or decoder only  (2 N)^(1/4)               (8 N)^(-1/4)           N layers
    encoder with a decoder   0.81 (N^4 M)^(1/16)       0.87 (N^4 M)^(-1/16)   N layers, M in the decoder
    decoder with an encoder  (3 M)^(1/4)               (12 M)^(-1/4)          M layers

Wang et al. 2022, "DeepNet: scaling transformers to 1,000 layers", figure 2, arXiv:2203.00555. There beta multiplies
Xavier's deviation; here the architecture's, and takes the place of GPT-2's smaller branch outputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

from torch import Tensor, nn

from zoo.contracts.residual import Branch, Residual

__all__ = ["DeepNorm"]


@final
class DeepNorm(Residual):
    """The post-norm arrangement of very deep stacks; what leaves the stack is normalized already."""

    final_norm = False

    @dataclasses.dataclass(kw_only=True)
    class Config(Residual.Config):
        """Knobs of DeepNorm."""

        decoder_layers: int | None = None
        """Layers of the decoder of an encoder-decoder, which its encoder must know; null in a single stack."""

    def __init__(self, config: Any, *, norm: Callable[..., nn.Module], branches: int, **parent: Any) -> None:
        super().__init__(config, norm=norm, branches=branches, **parent)
        layers, decoder = self.layers, config.decoder_layers
        if branches > 2 and decoder not in (None, layers):
            raise ValueError(f"decoder_layers is {decoder}, the decoder has {layers} layers; give both the same number")
        if decoder is None or branches > 2:
            self.alpha, self.beta = (branches * layers) ** 0.25, (4 * branches * layers) ** -0.25
        else:
            depth = (layers**4 * decoder) ** (1 / 16)
            self.alpha, self.beta = 0.81 * depth, 0.87 / depth

    def initial_factor(self, name: str) -> float | None:
        """Beta for all weights of branches but the projections of queries and keys."""
        return None if {"query", "key"} & set(name.split(".")) else self.beta

    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        """(B, T, D) the stream after the block."""
        for index, (norm, branch) in enumerate(zip(self.norms, branches, strict=True)):
            x_BTD = norm(self.alpha * x_BTD + self.contribution(index, branch(x_BTD)))
        return x_BTD
