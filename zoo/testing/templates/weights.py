"""Weights under the zoo's own names; say here what another library calls them.

theirs "model.<name>" = ours "<name>"
"""

from __future__ import annotations

from collections.abc import Iterator

from zoo.contracts.architecture import Architecture
from zoo.contracts.weights import Match, Weights

__all__ = ["Mine"]


class Mine(Weights):
    """For GPT-2."""

    architecture = "gpt2"

    def matches(self, model: Architecture) -> Iterator[Match]:
        """One tensor of theirs, and the tensors of ours that it is made of."""
        for name, _ in model.named_parameters():
            yield Match(f"model.{name}", (name,))
