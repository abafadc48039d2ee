"""Which samples each optimizer step sees: a pure function of (seed, step), whatever runs it."""

from __future__ import annotations

import dataclasses

import numpy as np

from zoo.contracts.data import Draw
from zoo.data.permutation import epoch_draw, permute

EMPTY = -1
"""Sample id of a row that has no target; it fills up what ranks can't share evenly."""

WINDOW = 64
"""Batches among which samples are sorted by length, and which are then shuffled."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """Rows of every batch of one part of the data, and the share of them that is one rank's.

    Row r of a batch belongs to rank r modulo ``world``. Where ``world`` doesn't divide the batch size, empty
    rows follow, so that every rank has the same number of rows and of batches.

    With ``lengths``, samples of like lengths share the batches of training, so that little is padded: each window
    of up to 64 batches of the shuffled epochs is sorted by length, cut into batches, and its batches are shuffled.
    A window is never longer than an epoch, and what belongs to two epochs is sorted apart, so that no batch holds
    a sample twice unless it is larger than the epoch.
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
    lengths: np.ndarray | None = dataclasses.field(default=None, compare=False)
    """(size,) integers, the length of each sample; ``None`` where it is the same."""

    def step(self, step: int) -> Draw:
        """Rows of optimizer step ``step``, from 0: the next of an endless row of shuffled epochs."""
        if self.lengths is not None:
            return self._share(*self._bucketed(step))
        return self._share(*epoch_draw(self.seed, step * self.batch_size, self.batch_size, self.size))

    def batches(self) -> int:
        """Batches that hold every sample once."""
        return -(-self.size // self.batch_size)

    def once(self, batch: int) -> Draw:
        """Rows of batch ``batch`` of one pass over all samples, in an order that depends on their number only.

        Not sorted by length: the first batches of a pass that is cut short are a fair sample of the part.
        """
        first = batch * self.batch_size
        index = np.arange(first, min(first + self.batch_size, self.size))
        samples = permute(index, self.size, (0,))
        return self._share(samples, np.zeros_like(samples))

    @property
    def window(self) -> int:
        """Batches of a window."""
        return max(1, min(WINDOW, self.size // self.batch_size))

    def _bucketed(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Samples and epochs of a step, both (batch_size,), from its window of sorted batches."""
        assert self.lengths is not None
        number, place = divmod(step, self.window)
        rows = self.window * self.batch_size
        samples, epochs = epoch_draw(self.seed, number * rows, rows, self.size)
        order = np.lexsort((self.lengths[samples], epochs))  # stable: equal lengths stay in their drawn order
        batch = int(permute(np.array([place]), self.window, (self.seed, number))[0])
        chosen = order[batch * self.batch_size :][: self.batch_size]
        return samples[chosen], epochs[chosen]

    def _share(self, samples: np.ndarray, epochs: np.ndarray) -> Draw:
        padding = -self.batch_size % self.world + self.batch_size - samples.size
        samples = np.concatenate([samples, np.full(padding, EMPTY)])
        epochs = np.concatenate([epochs, np.zeros(padding, dtype=np.int64)])
        mine = slice(self.rank, None, self.world)
        return Draw(samples[mine], epochs[mine], self.seed)
