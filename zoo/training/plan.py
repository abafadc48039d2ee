"""Which samples each optimizer step sees: a pure function of (seed, step), whatever runs it."""

from __future__ import annotations

import dataclasses

import numpy as np

from zoo.contracts.data import Draw
from zoo.data.permutation import epoch_draw, permute

EMPTY = -1
"""Sample id of a row that has no target; it fills up what ranks can't share evenly."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """Rows of every batch of one part of the data, and the share of them that is one rank's.

    Row r of a batch belongs to rank r modulo ``world``. Where ``world`` doesn't divide the batch size, empty
    rows follow, so that every rank has the same number of rows and of batches.
    """

    seed: int
    """The recipe's seed."""
    size: int
    """Samples in the part."""
    batch_size: int
    """Rows of a batch over all ranks."""
    rank: int = 0
    """This rank among those that see different rows."""
    world: int = 1
    """Number of such ranks."""

    def step(self, step: int) -> Draw:
        """Rows of optimizer step ``step``, from 0: the next of an endless row of shuffled epochs."""
        samples, epochs = epoch_draw(self.seed, step * self.batch_size, self.batch_size, self.size)
        return self._share(samples, epochs)

    def batches(self) -> int:
        """Batches that hold every sample once."""
        return -(-self.size // self.batch_size)

    def once(self, batch: int) -> Draw:
        """Rows of batch ``batch`` of one pass over all samples, in an order that depends on their number only."""
        first = batch * self.batch_size
        index = np.arange(first, min(first + self.batch_size, self.size))
        samples = permute(index, self.size, (0,))
        return self._share(samples, np.zeros_like(samples))

    def _share(self, samples: np.ndarray, epochs: np.ndarray) -> Draw:
        padding = -self.batch_size % self.world + self.batch_size - samples.size
        samples = np.concatenate([samples, np.full(padding, EMPTY)])
        epochs = np.concatenate([epochs, np.zeros(padding, dtype=np.int64)])
        mine = slice(self.rank, None, self.world)
        return Draw(samples[mine], epochs[mine], self.seed)
