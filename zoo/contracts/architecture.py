"""Contract of an architecture: parts are handed in, hidden states and the head come out separately.

Dimension legend: B batch, T tokens, S tokens of a source, D width, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from zoo.config import Part
from zoo.contracts.data import Description
from zoo.contracts.embedding import Embedding
from zoo.contracts.head import Head
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
    """Scalar: what a token costs by losses of the parts themselves; an output, so that FSDP2 sees its gradient."""

    def joined(self, total: Tensor, targets: Tensor) -> Tensor:
        """A task's loss summed over ``targets`` with as many times the auxiliary loss, which then weighs the same
        whatever share of the tokens are targets."""
        return total if self.auxiliary is None else total + targets * self.auxiliary


class Architecture(Part, nn.Module, ABC):
    """A whole network. Made by hand as ``GPT2(GPT2.Config(...), attention=MultiHead.part(), ...)``.

    ``slots`` name the parts it takes, each a keyword of its constructor (``encoder.attention`` is the keyword
    ``encoder_attention``). Sizes that are ``None`` in the config must be filled in from the data before.

    Attributes:
        embedding: makes the stream of the inputs.
        head: makes scores of the hidden states.
    """

    offers: ClassVar[frozenset[str]]
    """Words that a task can ask for: ``causal``, ``bidirectional``, ``cross``, ``cache``, ``padding`` ..."""

    embedding: Embedding
    head: Head

    @dataclasses.dataclass(kw_only=True)
    class Config(Part.Config):
        """Sizes that the data fills in where they are null; a larger one stands."""

        vocab_size: int | None = None
        """Number of token ids V; null means the tokenizer's."""
        max_length: int | None = None
        """Longest input in tokens, for positions that have a bound; null means the data's."""
        classes: int | None = None
        """Number of classes; null means the data's."""
        image_size: tuple[int, int] | None = None
        """Height and width of an image in pixels; null means the data's."""
        channels: int | None = None
        """Colour channels of an image; null means the data's."""

        def sizes(self) -> Description:
            """These five, for the parts that need them."""
            names = [field.name for field in dataclasses.fields(Description)]
            return Description(**{name: getattr(self, name) for name in names})

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    @abstractmethod
    def forward(
        self,
        inputs: Tensor,
        *,
        mask: Mask | None = None,
        positions_BTA: Tensor | None = None,
        cache: Cache | None = None,
        notes: Notes | None = None,
    ) -> Output:
        """Hidden states.

        Args:
            inputs: what the embedding takes: (B, T) int64 tokens, or (B, channels, height, width) images.
            mask: padding and documents of these tokens; ``None`` is the architecture's own mask.
            positions_BTA: (1|B, T, axes) int64; by default they follow from the embedding, the mask and the cache.
            cache: memory of earlier tokens, which is extended.
            notes: scratch paper, to look at attention maps.
        """

    @property
    @abstractmethod
    def max_length(self) -> int | None:
        """Most tokens that the model can take, or ``None`` where its positions have no bound."""

    @abstractmethod
    def block_modules(self) -> Iterator[nn.Module]:
        """The repeated blocks in order: what is sharded, checkpointed and compiled one by one."""

    def closing_modules(self) -> Iterator[nn.Module]:
        """What comes behind the blocks: the head, and norms that end a stack."""
        yield self.head

    def depths(self) -> dict[str, int]:
        """How deep each parameter stands, by name: 0 before the blocks, 1 in the first, one more than the last behind.

        A parameter that is used at both ends, as a tied token table, stands where it is first used.
        """
        blocks = [*self.block_modules()]
        places = [*((len(blocks) + 1, module) for module in self.closing_modules()), *enumerate(blocks, start=1)]
        found = {id(parameter): depth for depth, module in places for parameter in module.parameters()}
        return {name: found.get(id(parameter), 0) for name, parameter in self.named_parameters()}

    @abstractmethod
    def initialize(self, seed: int) -> None:
        """Fill all parameters, each from (seed, its own name): parts that two models share start equal."""

    @property
    def max_source(self) -> int | None:
        """Most tokens of a source, where there is one and the positions of its encoder have a bound."""
        return None

    def encode(self, **context: Tensor) -> Tensor:
        """(B, S, D) what the encoder makes of a source, in a model that offers ``cross``."""
        raise ValueError(f"{type(self).__name__} has no encoder of its own")

    def context(self, batch: int, length: int, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Random values on the CPU of what ``forward`` needs beside ``inputs``: the source of an encoder-decoder."""
        del batch, length, generator
        return {}
