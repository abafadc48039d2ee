"""Weights that two runs ended with, byte by byte."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from zoo.training.checkpoint import KEY, Checkpoints, model_state, read_checkpoint
from zoo.training.run import RunFolder
from zoo.training.weights import plain_names, read_weights


class Weights(NamedTuple):
    """The newest weights of a run."""

    step: int
    """Optimizer steps behind them."""
    tensors: dict[str, Tensor]
    """By the model's own names."""


class WeightsDifference(NamedTuple):
    """How the weights of two runs compare."""

    steps: tuple[int, int]
    """Behind those of the first and the second run."""
    tensors: int
    """Names in either."""
    differing: list[str]
    """Names of tensors that aren't the same bytes, or that only one has."""
    relative: float
    """Largest difference of two values, as a share of the largest value of their tensor."""

    def json(self) -> dict[str, Any]:
        """Plain values."""
        return {**self._asdict(), "steps": list(self.steps)}


def newest_weights(folder: RunFolder) -> Weights | None:
    """The weights of a run's last step, or of its newest checkpoint if that is newer; ``None`` if it has neither.

    Raises:
        UserError: a file that can't be read.
    """
    found = Checkpoints(folder.checkpoints, keep=0).newest()
    checkpoint = read_checkpoint(found[0]) if found else None
    saved = int(checkpoint[KEY]["step"]) if checkpoint else -1
    if folder.weights.is_file():
        tensors, facts = read_weights(folder.weights)
        if int(facts["step"]) >= saved:
            return Weights(int(facts["step"]), plain_names(tensors))
    return Weights(saved, plain_names(model_state(checkpoint["state_dict"]))) if checkpoint else None


def compare_weights(first: Weights, second: Weights) -> WeightsDifference:
    """Compare all tensors; those of other steps are compared as well, and differ."""
    names = list(dict.fromkeys([*first.tensors, *second.tensors]))
    differing = [name for name in names if not _is_same(first.tensors, second.tensors, name)]
    shared = [name for name in differing if name in first.tensors and name in second.tensors]
    shares = [_relative(first.tensors[name], second.tensors[name]) for name in shared]
    return WeightsDifference((first.step, second.step), len(names), differing, max(shares, default=0.0))


def _is_same(first: Mapping[str, Tensor], second: Mapping[str, Tensor], name: str) -> bool:
    if name not in first or name not in second:
        return False
    ours, theirs = first[name], second[name]
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    return torch.equal(_bytes(ours), _bytes(theirs))  # so that nan is itself, and -0.0 isn't 0.0


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8)


def _relative(first: Tensor, second: Tensor) -> float:
    """Infinite for tensors of other shapes, or with values that aren't finite."""
    if first.shape != second.shape:
        return math.inf
    if not first.numel():
        return 0.0
    ours, theirs = first.detach().double(), second.detach().double()
    largest = float(torch.maximum(ours.abs().max(), theirs.abs().max()))
    share = float((ours - theirs).abs().max()) / largest if largest else 0.0
    return share if math.isfinite(share) else math.inf
