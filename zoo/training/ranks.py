"""The processes that see different rows of a batch, and sums over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed
from lightning.pytorch.strategies import Strategy
from torch import Tensor


class Ranks:
    """The data-parallel group of a Lightning strategy.

    Ranks that share the work on the same rows (tensor parallel) have the same ``rank``.

    Attributes:
        rank, world: this process's number among ``world``.
    """

    def __init__(self, strategy: Strategy) -> None:
        where = getattr(strategy, "distributed_sampler_kwargs", None) or {"rank": 0, "num_replicas": 1}
        self.rank: int = where["rank"]
        self.world: int = where["num_replicas"]
        self.device: torch.device = strategy.root_device
        mesh: Any = getattr(strategy, "_device_mesh", None)
        self._group = None if mesh is None else mesh["data_parallel"].get_group()
        self._dtype = torch.float32 if self.device.type == "mps" else torch.float64  # mps has no float64

    def numbers(self, values: Sequence[float]) -> Tensor:
        """Python numbers as a vector that can be summed over ranks."""
        return torch.tensor(values, dtype=self._dtype, device=self.device if self.world > 1 else None)

    def scalars(self, values: Iterable[Tensor]) -> Tensor:
        """Scalars on the device as a vector that can be summed over ranks."""
        return torch.stack([value.detach().to(self._dtype) for value in values])

    def total(self, vector: Tensor) -> Tensor:
        """The sum of the ranks' vectors; the argument is overwritten."""
        if self.world > 1:
            torch.distributed.all_reduce(vector, group=self._group)
        return vector
