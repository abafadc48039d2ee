"""Contract of an architecture: parts are handed in, hidden states and the head come out separately.

Dimension legend: B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from zoo.config import Part
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes

Factory = Callable[..., Any]
"""Makes one part: ``MultiHead.part()``, called with what the parent knows (dim, heads, layer, ...)."""

Parts = Factory | Sequence[Factory]
"""One factory for all layers, or several that are dealt out over the layers in turn."""


class Output(NamedTuple):
    """What a forward pass gives."""

    hidden: Tensor
    """(B, T, D) hidden states, ready for the head."""
    auxiliary: Tensor | None
    """Scalar: losses of the parts themselves, a sum over tokens; an output, so that FSDP2 sees its gradient."""


class Architecture(Part, nn.Module, ABC):
    """A whole network. Made by hand as ``GPT2(GPT2.Config(...), attention=MultiHead.part(), ...)``.

    ``slots`` name the parts it takes, each a keyword of its constructor. Sizes that are ``None`` in the config
    (``vocab_size``, ``max_length``, ``classes``, ``image_size``) must be filled in from the data before.
    """

    needs: ClassVar[frozenset[str]]
    """Words that its attention must offer."""
    offers: ClassVar[frozenset[str]]
    """Words that a task can ask for: ``causal``, ``bidirectional``, ``cross``, ``cache``, ``padding`` ..."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def forward(
        self,
        ids_BT: Tensor,
        *,
        mask: Mask | None = None,
        positions_BTA: Tensor | None = None,
        cache: Cache | None = None,
        notes: Notes | None = None,
    ) -> Output:
        """Hidden states of (B, T) int64 tokens.

        Args:
            ids_BT: tokens, each below the vocabulary size.
            mask: padding and documents of these tokens; ``None`` is the architecture's own mask.
            positions_BTA: (1|B, T, axes) int64; by default they follow from mask and cache.
            cache: memory of earlier tokens, which is extended.
            notes: scratch paper, to look at attention maps.
        """

    @property
    @abstractmethod
    def head_weight(self) -> Tensor:
        """(V, D) weight of the output layer, for a loss that never makes the (B, T, V) logits."""

    @property
    def head_bias(self) -> Tensor | None:
        """(V,) bias of the output layer, or ``None``."""
        return None

    @property
    @abstractmethod
    def max_length(self) -> int | None:
        """Most tokens that the model can take, or ``None`` where its positions have no bound."""

    def head(self, hidden: Tensor) -> Tensor:
        """(..., V) scores over the vocabulary from (..., D)."""
        return nn.functional.linear(hidden, self.head_weight, self.head_bias)

    @abstractmethod
    def block_modules(self) -> Iterator[nn.Module]:
        """The repeated blocks in order: what is sharded, checkpointed and compiled one by one."""

    @abstractmethod
    def initialize(self, seed: int) -> None:
        """Fill all parameters, each from (seed, its own name): parts that two models share start equal."""
