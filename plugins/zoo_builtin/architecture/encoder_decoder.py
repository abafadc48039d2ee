"""An encoder reads the source, a decoder writes the target and looks at what the encoder made of the source.

    source -> embedding + positions -> [ attention; feed_forward ] x layers                    -> memory
    target -> embedding + positions -> [ causal attention; attention to memory; feed_forward ] x layers
           -> hidden -> embedding table^T -> scores of the next target token

Vaswani et al. 2017, "Attention is all you need", arXiv:1706.03762, figure 1 (article, section 9). The defaults are its
base model, 63,082,496 parameters with a vocabulary of 37,000; with relative buckets, RMS norm and no biases it is T5.
One table serves both sides and the head. While generating, the encoder runs once, and so do the projections of its
memory: the cache keeps both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, final

import torch
from torch import Tensor, nn

from zoo.config import Slot
from zoo.contracts.architecture import Architecture, Factory, Output, Parts
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import CAUSAL, Mask
from zoo.contracts.values.notes import Notes
from zoo.initialization import initialize
from zoo.nn.block import Stack

__all__ = ["EncoderDecoder"]


@dataclasses.dataclass(kw_only=True)
class Side:
    """What one side may have of its own."""

    layers: int | None = None
    """Number of blocks; null means ``layers`` of both sides."""


@final
class EncoderDecoder(Architecture):
    """A model of pairs of sequences."""

    offers = frozenset({"causal", "cross", "cache", "padding"})
    slots = {  # noqa: RUF012
        "embedding": Slot("embedding", "tokens"),
        "attention": Slot("attention", "multi_head", cycled=True),
        "position": Slot("position", "sinusoidal", cycled=True),
        "feed_forward": Slot("feed_forward", "mlp", cycled=True),
        "norm": Slot("norm", "layer_norm"),
        "residual": Slot("residual", "post"),
        "head": Slot("head", "language_model"),
        "encoder.attention": Slot(
            "attention", "", cycled=True, needs=frozenset({"bidirectional", "padding"}), like="attention"
        ),
        "encoder.position": Slot("position", "", cycled=True, like="position"),
        "decoder.attention": Slot("attention", "", cycled=True, needs=frozenset({"causal"}), like="attention"),
        "decoder.cross_attention": Slot("attention", "", cycled=True, needs=frozenset({"cross"}), like="attention"),
        "decoder.position": Slot("position", "", cycled=True, like="position"),
    }

    @dataclasses.dataclass(kw_only=True)
    class Config(Architecture.Config):
        """Sizes of both sides."""

        layers: int = 6
        """Number of blocks on each side."""
        dim: int = 512
        """Width D."""
        heads: int = 8
        """Attention heads N."""
        dropout: float = 0.0
        """Probability of dropping an embedding, an attention weight or a branch's output element."""
        embedding_norm: bool = False
        """Whether embeddings with their positions are normalized before the first block, as in BART."""
        final_norm: bool | None = None
        """Whether each side ends with a norm; null leaves it to the residual arrangement."""
        encoder: Side = dataclasses.field(default_factory=Side)
        """The side that reads the source."""
        decoder: Side = dataclasses.field(default_factory=Side)
        """The side that writes the target."""

    def __init__(
        self,
        config: Any,
        *,
        embedding: Factory,
        attention: Parts,
        position: Parts,
        feed_forward: Parts,
        norm: Factory,
        residual: Factory,
        head: Factory,
        encoder_attention: Parts | None = None,
        encoder_position: Parts | None = None,
        decoder_attention: Parts | None = None,
        decoder_cross_attention: Parts | None = None,
        decoder_position: Parts | None = None,
    ) -> None:
        super().__init__(config)
        self.embedding = embedding(dim=config.dim, sizes=config.sizes())
        shared = {"feed_forward": feed_forward, "norm": norm, "residual": residual, "dropout": config.dropout}
        shared |= {"dim": config.dim, "heads": config.heads, "length": config.max_length}
        shared |= {"embedding_norm": config.embedding_norm, "final_norm": config.final_norm}
        self.encoder = Stack(
            layers=config.layers if config.encoder.layers is None else config.encoder.layers,
            causal=False,
            attention=encoder_attention or attention,
            position=encoder_position or position,
            **shared,
        )
        self.decoder = Stack(
            layers=config.layers if config.decoder.layers is None else config.decoder.layers,
            causal=True,
            attention=decoder_attention or attention,
            cross_attention=decoder_cross_attention or attention,
            position=decoder_position or position,
            **shared,
        )
        self.head = head(dim=config.dim, sizes=config.sizes(), embedding=self.embedding, norm=norm)
        self.head.refuse_causal()

    def forward(
        self,
        inputs: Tensor,
        *,
        mask: Mask | None = None,
        positions_BTA: Tensor | None = None,
        cache: Cache | None = None,
        notes: Notes | None = None,
        source_BS: Tensor | None = None,
        source_valid_BS: Tensor | None = None,
    ) -> Output:
        """Hidden states (B, T, D) of target tokens (B, T).

        Args:
            inputs: the target, each token one place late: it begins with a start token.
            mask, positions_BTA, cache, notes: of the target, see ``Architecture.forward``.
            source_BS: (B, S) int64 tokens of the source; not needed again where the cache knows the source.
            source_valid_BS: (B, S) bool, False is padding of the source.

        Raises:
            ValueError: no source.
        """
        notes = Notes() if notes is None else notes
        memory_BSD, valid_BS = self._memory(source_BS, source_valid_BS, cache, notes)
        history = Cache() if cache is None else cache
        x_BTD = self.embedding(inputs)
        mask, at_BTA, keys_BSA = history.extend(mask or CAUSAL, x_BTD, positions_BTA)
        places = self.decoder.places(self.embedding, inputs, at_BTA, keys_BSA)
        hidden_BTD = self.decoder(
            self.decoder.embed(x_BTD, places),
            mask=mask,
            places=places,
            cache=cache,
            notes=notes,
            context_BSD=memory_BSD,
            context_mask=Mask(valid_BS=valid_BS).sized(x_BTD.shape[1], memory_BSD.shape[1]),
        )
        return Output(hidden_BTD, notes.auxiliary_mean())

    def _memory(
        self, source_BS: Tensor | None, valid_BS: Tensor | None, cache: Cache | None, notes: Notes
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states (B, S, D) of the source and its padding, made once and kept in the cache."""
        kept = None if cache is None else cache.layer("source")
        if kept is not None and (memory_BSD := kept.get("hidden")) is not None:
            return memory_BSD, kept.get("valid")
        if source_BS is None:
            raise ValueError("an encoder-decoder needs a source: source_BS")
        memory_BSD = self.encode(source_BS=source_BS, source_valid_BS=valid_BS, notes=notes.part("encoder"))
        if kept is not None:
            kept.put("hidden", memory_BSD)
            if valid_BS is not None:
                kept.put("valid", valid_BS)
        return memory_BSD, valid_BS

    def encode(  # type: ignore[override]  # says which keywords ``context`` has
        self, *, source_BS: Tensor, source_valid_BS: Tensor | None = None, notes: Notes | None = None
    ) -> Tensor:
        """(B, S, D) hidden states of a source."""
        x_BSD = self.embedding(source_BS)
        mask, at_BSA, keys_BSA = Cache().extend(Mask(valid_BS=source_valid_BS), x_BSD)
        places = self.encoder.places(self.embedding, source_BS, at_BSA, keys_BSA)
        return self.encoder(self.encoder.embed(x_BSD, places), mask=mask, places=places, notes=notes)

    @property
    def max_length(self) -> int | None:
        """Most tokens of a target, if the decoder's positions have a bound."""
        return self.decoder.max_length

    @property
    def max_source(self) -> int | None:
        """Most tokens of a source, if the encoder's positions have a bound."""
        return self.encoder.max_length

    def block_modules(self) -> Iterator[nn.Module]:
        """The encoder's blocks, then the decoder's."""
        yield from (*self.encoder.blocks, *self.decoder.blocks)

    def closing_modules(self) -> Iterator[nn.Module]:
        """The closing norm of each side, and the head."""
        yield from (self.encoder.final_norm, self.decoder.final_norm, self.head)

    def initialize(self, seed: int) -> None:
        """Normal, deviation 1 / sqrt(D), so that embeddings times sqrt(D) and products alike have a deviation of 1."""
        initialize(self, seed, std=self.config.dim**-0.5, branch_std=self.config.dim**-0.5)

    def context(self, batch: int, length: int, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """A random source, the same in every row."""
        return {"source_BS": self.embedding.example(1, length, generator).expand(batch, -1)}
