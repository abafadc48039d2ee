"""Contract of a head: hidden states become scores. ``Head`` for any, ``TokenHead`` for scores over a vocabulary.

Dimension legend: B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zoo.config import Part
from zoo.contracts.data import Description
from zoo.contracts.embedding import Embedding


class Head(Part, nn.Module, ABC):
    """What a task reads off a model.

    Args:
        config: the head's knobs.
        dim: width D of the hidden states.
        sizes: vocabulary and classes of the data.
        embedding: the model's, for a head that is tied to its table or must know its patches.
        norm: factory of a norm, called as ``norm(dim=dim)``.

    Attributes:
        reads_front: whether it reads the first token alone, which in a causal model has seen nothing but itself.
    """

    reads_front: bool = False

    offers: ClassVar[frozenset[str]]
    """Words for tasks: ``token_scores``, ``class_scores``, ``pixels`` ..."""
    takes: ClassVar[frozenset[str]] = frozenset()
    """Sizes of the data (fields of ``Description``) that it must know."""

    def __init__(
        self, config: Any, *, dim: int, sizes: Description, embedding: Embedding, norm: Callable[..., nn.Module]
    ) -> None:
        super().__init__()
        del norm
        self.config, self.dim, self.sizes = config, dim, sizes
        self._embedding = (embedding,)  # in a tuple, so that it isn't a part of this module: its tensors have one name

    @property
    def embedding(self) -> Embedding:
        """The model's embedding."""
        return self._embedding[0]

    def refuse_causal(self) -> None:
        """Refuse a model whose tokens see only what is before them, if the first token alone is read.

        Raises:
            ValueError: so it is.
        """
        if self.reads_front:
            raise ValueError(
                "the head reads the first token alone, which in a causal model has seen nothing but itself; "
                "set head.pool: last"
            )

    @abstractmethod
    def forward(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """Scores of hidden states.

        Args:
            hidden_BTD: what the architecture gave.
            valid_BT: False is padding, for heads that gather over tokens.
        """


class TokenHead(Head):
    """Scores over the vocabulary, as ``states(hidden) @ weight^T + bias``, so that a loss needn't make them all.

    Args:
        tied: whether the weight is the table of the embedding; then there is no second tensor that could drift.
        bias: whether there is a bias.

    Raises:
        ValueError: tied to an embedding that has no table.
    """

    offers = frozenset({"token_scores"})
    takes = frozenset({"vocab_size"})

    def __init__(self, config: Any, *, tied: bool, bias: bool, **parent: Any) -> None:
        super().__init__(config, **parent)
        if self.sizes.vocab_size is None:
            raise ValueError("vocab_size is null, and no data filled it in")
        if tied and self.embedding.table is None:
            raise ValueError(f"{type(self).__name__} can't be tied: {type(self.embedding).__name__} has no token table")
        self.untied = None if tied else nn.Linear(self.dim, self.sizes.vocab_size, bias=bias)
        self.tied_bias = TokenBias(self.sizes.vocab_size) if tied and bias else None

    def states(self, hidden: Tensor) -> Tensor:
        """(..., D) what the weight multiplies, from (..., D) hidden states."""
        return hidden

    @property
    def weight(self) -> Tensor:
        """(V, D)."""
        if self.untied is not None:
            return self.untied.weight
        table = self.embedding.table
        assert table is not None
        return table

    @property
    def bias(self) -> Tensor | None:
        """(V,), or ``None``."""
        if self.untied is not None:
            return self.untied.bias
        return None if self.tied_bias is None else self.tied_bias.bias

    def forward(self, hidden_BTD: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """(..., V) scores of (..., D) hidden states."""
        del valid_BT
        return nn.functional.linear(self.states(hidden_BTD), self.weight, self.bias)


class TokenBias(nn.Module):
    """The bias of a tied head."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(size))

    def initial(self, name: str, parameter: Tensor, generator: Any) -> None:
        """Zero."""
        del name, generator
        parameter.zero_()
