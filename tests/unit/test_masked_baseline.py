"""The baseline of masked language modelling, over tokens that can be counted by hand."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from zoo.contracts.data import Description

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "masked_baseline.py"
TRAIN = np.array([[0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 3, 2]])
HELD_OUT = np.array([[0, 9, 2, 9, 1, 2]])  # 9 hides a 1 and a 0
TARGETS = np.array([[-100, 1, -100, 0, -100, -100]])


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """Benchmarks are scripts, not a package, so this one is loaded from its path."""
    spec = importlib.util.spec_from_file_location("masked_baseline", BENCHMARK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Given:
    """A data set and a task in one, with nothing hidden in the training part."""

    def __init__(self) -> None:
        self.data = self

    def size(self, split: str) -> int:
        return 2 if split == "train" else 1

    def describe(self) -> Description:
        return Description(vocab_size=10)

    def batch(self, draw: Any, split: str) -> dict[str, torch.Tensor]:
        return {"ids": torch.from_numpy(TRAIN if split == "train" else HELD_OUT)}

    def prepare(self, batch: dict[str, torch.Tensor], draw: Any, split: str) -> dict[str, torch.Tensor]:
        targets = np.full_like(TRAIN, -100) if split == "train" else TARGETS
        return {**batch, "targets": torch.from_numpy(targets)}


def test_guesses_that_dont_look_at_the_text(benchmark: ModuleType) -> None:
    found = benchmark.baseline(Given(), "validation")
    assert found.targets == 2
    counts = {0: 4, 1: 3, 2: 4, 3: 1}  # of 12, and one more for each of 10 ids
    want = -(math.log((counts[1] + 1) / 22) + math.log((counts[0] + 1) / 22)) / 2
    assert found.loss == pytest.approx(want)
    assert found.unigram == 0.5  # the guess is 0, the first of the two most frequent ones
    assert found.neighbours == 1.0  # 0 ? 2 is 1 in two of three places; after a 2 comes 0
