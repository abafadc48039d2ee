"""A position scheme around others, which a slot brings: it says where tokens stand, they say what that does.

Dimension legend: B batch, T queries, S keys, A axes of a position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, cast

from torch import nn

from zoo.config import Slot
from zoo.contracts.position import Position


class Wrapped(Position):
    """Acts where its ``schemes`` act, and needs of an attention what they need.

    A subclass makes them of its slot ``scheme`` and hands them to ``wrap``.
    """

    slots: ClassVar[Mapping[str, Slot]] = {"scheme": Slot("position", "rotary")}

    def wrap(self, *schemes: Position) -> None:
        """Take in the schemes, made of one factory."""
        self.schemes = nn.ModuleList(schemes)
        first = schemes[0]
        self.content, self.bounded, self.by_head = first.content, first.bounded, first.by_head

    def acts(self, method: Literal["embed", "rotate", "bias"]) -> bool:
        """Whether the schemes do anything there."""
        return cast(Position, self.schemes[0]).acts(method)

    @classmethod
    def needs(cls) -> frozenset[str]:
        """None of its own."""
        return frozenset()
