"""In training, positions are drawn anew each step from a longer range and sorted, so that no length is a surprise.

    p_0 < p_1 < ... < p_(T-1), a random subset of 0 ... range - 1;  token t stands at p_t

Acts where its ``scheme`` acts. One draw serves a whole batch: tokens at equal positions stay at equal ones, as those
of packed documents do. In evaluation nothing is drawn, so that a cache and a second pass agree: positions are times
``stride``. A scheme with a table has a row for each position of the range, and is still bound by the model's length.
Ruoss et al. 2023, "Randomized positional encodings boost length generalization of transformers",
section 3, arXiv:2305.16843.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast, final

import torch
from torch import Tensor

from zoo.contracts.position import Position
from zoo.contracts.values.call import Call
from zoo.nn.wrapped import Wrapped

__all__ = ["Randomised"]


@final
class Randomised(Wrapped):
    """A scheme at random positions."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Wrapped.Config):
        """Knobs of the draw."""

        range: int | None = None
        """Positions to draw from: the longest input that the model shall ever see, or more; null means 8 times
        architecture.max_length (the paper: 2048 for inputs of 40)."""
        stride: int = 1
        """What positions are multiplied by in evaluation; range / length is the mean distance in training."""

    def __init__(
        self, config: Any, *, scheme: Callable[..., Position], length: int | None = None, **parent: Any
    ) -> None:
        super().__init__(config, length=length, **parent)
        if config.range is None and length is None:
            raise ValueError("randomised must know how far places go; set its range, or architecture.max_length")
        self.range = 8 * (length or 1) if config.range is None else config.range
        if config.stride < 1 or self.range <= config.stride * ((length or 1) - 1):
            raise ValueError(
                f"randomised can't place {length or 1} tokens {config.stride} apart in a range of {self.range}; "
                "make range larger"
            )
        self.wrap(scheme(length=self.range, **parent))
        if self.schemes[0].axes != 1:
            raise ValueError(f"randomised draws places in a row, and {type(self.schemes[0]).__name__} takes a grid")

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        """(B, T, D) embeddings, placed by the scheme.

        Raises:
            ValueError: a position past the scheme's bound.
        """
        (drawn_BTA,) = self._drawn(at_BTA.shape[1], at_BTA)
        return self._scheme().embed(x_BTD, drawn_BTA)

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Any:
        """What the scheme prepares of the positions drawn."""
        return self._scheme().prepare(*self._drawn(keys_BSA.shape[1], at_BTA, keys_BSA))

    def rotate(self, x_BNTH: Tensor, prepared: Any) -> Tensor:
        """Queries, turned by the scheme."""
        return self._scheme().rotate(x_BNTH, prepared)

    def rotate_keys(self, k_BNTH: Tensor, prepared: Any) -> Tensor:
        """New keys, turned by the scheme."""
        return self._scheme().rotate_keys(k_BNTH, prepared)

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Any) -> Tensor | None:
        """The scheme's."""
        return self._scheme().bias(q_BNTH, k_BNSH, call, prepared)

    def _scheme(self) -> Position:
        return cast(Position, self.schemes[0])

    def _drawn(self, tokens: int, *positions: Tensor) -> list[Tensor]:
        """The same tokens at the places that they are given; who stands past all tokens goes on past the range."""
        if self.bounded and self.length is not None:
            for at in positions:
                self.refuse_past(at, self.length)
        if not self.training:
            return [at * self.config.stride for at in positions]
        if tokens > self.range:
            raise ValueError(f"randomised can't place {tokens} tokens in a range of {self.range}")
        device = positions[0].device
        places = torch.randperm(self.range, device=device)[:tokens].sort().values
        end = self.range - tokens
        return [torch.where(at < tokens, places[at.clamp(max=tokens - 1)], at + end) for at in positions]
