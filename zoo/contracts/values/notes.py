"""One forward pass's scratch paper: what layers leave for later layers, for the loss, and for a curious reader."""

from __future__ import annotations

import torch
from torch import Tensor


class Notes:
    """Tensors kept by name during one forward pass.

    A plain class on purpose: FSDP2 rebuilds every dict, list, tuple and dataclass argument that holds a tensor
    with a gradient, and what a layer writes into the copy is lost without a word.

    Args:
        maps: ask the attention layers to keep their weights, as ``maps(layer)``.
    """

    def __init__(self, *, maps: bool = False) -> None:
        self.wants_maps = maps
        self._kept: dict[str, Tensor] = {}
        self._auxiliary: dict[str, tuple[Tensor, int | Tensor]] = {}
        self._parts: dict[str, Notes] = {}

    def part(self, name: str) -> Notes:
        """Notes of a part of the model, an encoder for instance; its auxiliary losses count here too."""
        if name not in self._parts:
            self._parts[name] = Notes(maps=self.wants_maps)
            self._parts[name]._auxiliary = self._auxiliary
        return self._parts[name]

    def keep(self, name: str, value: Tensor) -> None:
        """Leave a tensor for later layers; names are the writer's, ``value_residual.0.self`` for instance."""
        self._kept[name] = value

    def get(self, name: str) -> Tensor | None:
        """What was kept under a name, or ``None``."""
        return self._kept.get(name)

    def maps(self, layer: int, kind: str = "self") -> Tensor:
        """(B, N, T, S) attention weights of a layer, asked for with ``maps=True``.

        Raises:
            KeyError: that layer left none.
        """
        return self._kept[f"map.{layer}.{kind}"]

    def auxiliary(self, name: str, total: Tensor, count: int | Tensor) -> None:
        """Add a loss of a part's own: the sum over ``count`` tokens of something a token costs."""
        if name in self._auxiliary:
            earlier, tokens = self._auxiliary[name]
            total, count = earlier + total, tokens + count
        self._auxiliary[name] = (total, count)

    def auxiliary_total(self) -> Tensor | None:
        """Sum of all auxiliary losses over tokens; ``None`` if none."""
        totals = [total for total, _ in self._auxiliary.values()]
        return sum(totals[1:], start=totals[0]) if totals else None

    def auxiliary_mean(self) -> Tensor | None:
        """What a token costs by all auxiliary losses together; ``None`` if there are none."""
        means = [total / torch.as_tensor(count).clamp(min=1) for total, count in self._auxiliary.values()]
        return sum(means[1:], start=means[0]) if means else None
