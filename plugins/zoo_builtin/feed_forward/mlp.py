"""Two linear layers with a nonlinearity between them, the same at every position.

    MLP(x) = W_2 f(W_1 x + b_1) + b_2, D -> 4D -> D                           (article, section 7)

8 D^2 + 5 D parameters at the usual expansion of 4. GELU: Hendrycks and Gimpel 2016, arXiv:1606.08415; GPT-2 uses
its tanh approximation, BERT the exact one, Vaswani et al. 2017 ReLU, Marian's translators SiLU; the square of ReLU
is from So et al. 2021, "Primer", arXiv:2109.08668.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, final

from torch import Tensor, nn

from zoo.contracts.feed_forward import FeedForward
from zoo.contracts.values.notes import Notes
from zoo.initialization import branch_output
from zoo.nn.activations import activate

__all__ = ["MLP"]


@final
class MLP(FeedForward):
    """The feed-forward network of the original transformer and of GPT-2."""

    @dataclasses.dataclass(kw_only=True)
    class Config(FeedForward.Config):
        """Knobs of the MLP."""

        hidden: int | None = None
        """Hidden units; null means ``expansion`` times the width."""
        expansion: float = 4.0
        """Hidden units for each element of the width."""
        activation: Literal["gelu", "gelu_tanh", "relu", "squared_relu", "silu"] = "gelu_tanh"
        """Exact GELU, its tanh approximation (they differ by up to 4.7e-4), ReLU, its square, or SiLU."""
        bias: bool = True
        """Biases in both layers."""

    def __init__(self, config: Any, **parent: Any) -> None:
        super().__init__(config, **parent)
        hidden = config.hidden or round(self.dim * config.expansion)
        self.up = nn.Linear(self.dim, hidden, bias=config.bias)
        self.down = branch_output(nn.Linear(hidden, self.dim, bias=config.bias))

    def forward(self, x_BTD: Tensor, *, valid_BT: Tensor | None = None, notes: Notes | None = None) -> Tensor:
        """(B, T, D) from (B, T, D)."""
        return self.down(activate(self.config.activation, self.up(x_BTD)))
