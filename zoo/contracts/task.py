"""Contract of a task: what is predicted from what, as sums that add up over micro-batches and ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor

from zoo.config import Part
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Data, Description, Draw, Split

Batch = dict[str, Tensor]


class Loss(NamedTuple):
    """Loss of some rows."""

    total: Tensor
    """Scalar with a gradient: the SUM over targets; the training module divides once, by all targets of the step."""
    sums: dict[str, Tensor]
    """Scalars that add up over batches and ranks, detached: ``loss``, ``targets`` and what the metrics are made of."""


class Task(Part, ABC):
    """What a model is trained and measured on. Made as ``Task(config, data=data)`` after ``data.prepare()``."""

    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]]
    """Each metric of ``summary`` and which way is better; the first one selects the best checkpoint."""
    needs: ClassVar[frozenset[str]]
    """Words that the architecture with its embedding and its head must offer."""
    keys: ClassVar[frozenset[str]]
    """Keys that a batch of the data must have."""
    gives_source: ClassVar[bool] = False
    """Whether ``loss`` gives a model that reads a source beside its input one."""

    def __init__(self, config: Any, *, data: Data) -> None:
        self.config, self.data = config, data

    def measured(self) -> Sequence[str]:
        """Every name that ``summary`` can give: ``metrics``, and behind these what the data adds, its slices."""
        return tuple(self.metrics)

    def describe(self) -> Description:
        """Sizes that the model needs for this task: the data's own, if it asks for no more."""
        return self.data.describe()

    def prepare(self, batch: Batch, draw: Draw, split: Split) -> Batch:
        """The batch as the model gets it, made on the CPU: what is hidden, mixed or shifted.

        A pure function of its arguments: what is random about a sample is drawn from (seed, epoch, sample id).
        """
        del draw, split
        return batch

    @abstractmethod
    def count(self, batch: Batch) -> int:
        """Number of targets in a batch on the CPU, known before the forward pass."""

    @abstractmethod
    def loss(self, model: Architecture, batch: Batch) -> Loss:
        """Summed loss of a batch, and the sums that its metrics are made of.

        A batch without any target has the loss 0 and a gradient of 0 for every parameter.
        """

    @abstractmethod
    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Metrics from sums over a whole part.

        Raises:
            RunFailed: no target in all of it.
        """
