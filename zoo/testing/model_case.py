"""A whole model as the subject of checks, made anew as often as one wants it.

Dimension legend: B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from zoo.contracts.architecture import Architecture, Output
from zoo.contracts.head import TokenHead
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import Mask
from zoo.initialization import generator_for
from zoo.testing.suite import Check


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ModelCase:
    """One model, made anew as often as a check wants it.

    Attributes:
        build: makes the model on a device, with its initial values on any but ``meta``.
        tokens: length T.
        seed: everything random follows from it.
    """

    build: Callable[[str], Architecture]
    tokens: int
    seed: int
    _contexts: dict[Any, dict[str, Tensor]] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """``T=5``."""
        return f"T={self.tokens}"

    def make(self, *, training: bool = False) -> Architecture:
        """The model in float64, its initial values moved a little so that none of them is 0 or 1."""
        model = self.build("cpu").double().train(training)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                generator = generator_for(self.seed, f"scatter/{name}")
                parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter), alpha=0.03)
        return model

    def inputs(self, model: Architecture, batch: int = 2, *, salt: int = 0) -> Tensor:
        """Random tokens (B, T), or images."""
        generator = torch.Generator().manual_seed(self.seed * 1000 + salt)
        return model.embedding.example(batch, self.tokens, generator)

    def input(self, batch: int = 2, *, salt: int = 0) -> Tensor:
        """The same, for a model that is made on the way."""
        return self.inputs(self.build("meta"), batch, salt=salt)

    def hidden(
        self, model: Architecture, inputs: Tensor, mask: Mask | None = None, cache: Cache | None = None
    ) -> Output:
        """Hidden states; what a forward pass needs beside its inputs is the same in every row."""
        if inputs.is_floating_point():
            inputs = inputs.to(next(model.parameters()).dtype)
        if (key := (len(inputs), inputs.device)) not in self._contexts:  # made once: a compiler can't take the draw
            made = model.context(len(inputs), 4, torch.Generator().manual_seed(self.seed))
            self._contexts[key] = {name: value.to(inputs.device) for name, value in made.items()}
        return model(inputs, mask=mask, cache=cache, **self._contexts[key])

    def run(self, model: Architecture, inputs: Tensor, mask: Mask | None = None, cache: Cache | None = None) -> Tensor:
        """(B, T, V) scores of a head that scores tokens, else (B, T, D) hidden states."""
        hidden_BTD = self.hidden(model, inputs, mask, cache).hidden
        return model.head(hidden_BTD) if isinstance(model.head, TokenHead) else hidden_BTD

    def chunks(self, model: Architecture, inputs: Tensor, sizes: Sequence[int], cache: Cache, *first: Mask) -> Tensor:
        """(B, T, V) piece by piece through a cache; the first piece may have a mask of its own."""
        scores = []
        with torch.no_grad():
            for index, piece_BT in enumerate(inputs.split(list(sizes), 1)):
                scores.append(self.run(model, piece_BT, first[index] if index < len(first) else None, cache))
        return torch.cat(scores, 1)


class ModelSubject:
    """A model under examination.

    Args:
        build: makes the model on a device.
        offers: words that its class offers.
        seed: everything random follows from it.
    """

    def __init__(self, build: Callable[[str], Architecture], offers: frozenset[str], *, seed: int = 0) -> None:
        self.build, self._offers, self.seed = build, offers, seed

    @property
    def offers(self) -> frozenset[str]:
        """Words that the class offers."""
        return self._offers

    def cases(self, check: Check) -> Iterator[ModelCase]:
        """One token, and five."""
        for tokens in check.tokens or (1, 5):
            yield ModelCase(build=self.build, tokens=tokens, seed=self.seed)
