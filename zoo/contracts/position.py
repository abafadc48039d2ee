"""Contract of a position scheme: it acts on embeddings, on queries and keys, or on scores.

Dimension legend: B batch, T queries, S keys, D width, N heads, H head size, A axes of a position.
"""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from zoo.config import Part

if TYPE_CHECKING:
    from zoo.contracts.values.call import Call

_AXES = {1: ("position",), 2: ("row", "column")}


class Position(Part, nn.Module, ABC):
    """How order gets into a model. A scheme overrides one of ``embed``, ``rotate``, ``bias``; the rest are neutral.

    Positions are explicit integers (1|B, T, axes): left padding, a cache, packed documents and a grid of patches
    are all just positions. A scheme lives once at the root of its architecture, never inside a block.

    Args:
        config: the scheme's knobs.
        dim: width D of the embeddings.
        heads: number of heads that scores have (twice N in differential attention).
        size: size of the queries and keys that are compared.
        length: most positions there can be, or ``None`` for no bound.
        causal: whether a query is compared with keys at or before it only.
        grid: rows and columns of a grid of patches, or ``None``.
    """

    axes: ClassVar[int] = 1
    """Number of coordinates of a position: 1 in a text, 2 on a grid."""
    content: bool = False
    """Whether ``bias`` reads the queries or keys."""
    bounded: bool = False
    """Whether positions must stay below ``length``."""
    by_head: bool = False
    """Whether ``rotate`` turns each head by angles of its own, so that heads of queries can't share a key."""
    relative: ClassVar[bool] = False
    """Whether distances alone matter: a shift of all positions, queries' and keys' alike, changes no attention."""
    mixes: ClassVar[bool] = False
    """Whether ``embed`` moves something between tokens, which needs all of them at once: no cache, no causal mask."""
    liftable: ClassVar[bool] = True
    """Whether the scheme of a row serves the rows and the columns of a grid too, each by itself."""

    def __init__(
        self,
        config: Any,
        *,
        dim: int,
        heads: int,
        size: int,
        length: int | None = None,
        causal: bool = False,
        grid: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.config, self.dim, self.heads, self.size = config, dim, heads, size
        self.length, self.causal, self.grid = length, causal, grid

    def embed(self, x_BTD: Tensor, at_BTA: Tensor) -> Tensor:
        """Embeddings with their positions.

        Raises:
            ValueError: a position past the scheme's bound.
        """
        del at_BTA
        return x_BTD

    def prepare(self, at_BTA: Tensor, keys_BSA: Tensor) -> Any:
        """Tables of this forward pass (cosines, buckets), made once and given to every ``rotate`` and ``bias``."""
        del at_BTA, keys_BSA
        return None

    def rotate(self, x_BNTH: Tensor, prepared: Any) -> Tensor:
        """Queries or keys turned by their positions, same shape and dtype; keys are cached after it."""
        del prepared
        return x_BNTH

    def rotate_keys(self, k_BNTH: Tensor, prepared: Any) -> Tensor:
        """New keys, where they are turned otherwise than queries."""
        return self.rotate(k_BNTH, prepared)

    def bias(self, q_BNTH: Tensor, k_BNSH: Tensor, call: Call, prepared: Any) -> Tensor | None:
        """What is added to the scaled scores, broadcastable to (B, N, T, S)."""
        del q_BNTH, k_BNSH, call, prepared
        return None

    def refuse_past(self, at_BTA: Tensor, *bounds: int) -> None:
        """Refuse positions at or past the bound of their axis; on a CPU only, elsewhere a look stops the device.

        Raises:
            ValueError: a position for which nothing was learned.
        """
        if not at_BTA.is_cpu or torch.compiler.is_compiling():
            return
        for at_BT, bound, name in zip(at_BTA.unbind(-1), bounds, _AXES[len(bounds)], strict=True):
            if (last := int(at_BT.max())) >= bound:
                raise ValueError(f"{name} {last} is past the last learned one, {bound - 1}")

    def acts(self, method: Literal["embed", "rotate", "bias"]) -> bool:
        """Whether the scheme does anything there."""
        return self.overrides(method)

    @classmethod
    def overrides(cls, method: Literal["embed", "rotate", "bias"]) -> bool:
        """Whether the class has a method of its own."""
        return getattr(cls, method) is not getattr(Position, method)

    @classmethod
    def needs(cls) -> frozenset[str]:
        """Words that an attention must offer to be used with this scheme, beside those of parts in its slots."""
        words = {"rotate": cls.overrides("rotate"), "bias": cls.overrides("bias"), "content_bias": cls.content}
        return frozenset(word for word, needed in words.items() if needed)
