"""Made tasks at many settings of their knobs, and ways to look at their samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from zoo.contracts.data import Draw, Split
from zoo.data.synthetic import Synthetic
from zoo_builtin.data.addition import Addition
from zoo_builtin.data.copying import Copying
from zoo_builtin.data.dyck import Dyck
from zoo_builtin.data.induction import Induction
from zoo_builtin.data.listops import ListOps
from zoo_builtin.data.mqar import MQAR
from zoo_builtin.data.needle import Needle
from zoo_builtin.data.parity import Parity

NOWHERE = Path()  # nothing is stored

CASES: list[tuple[type[Any], dict[str, Any]]] = [
    (MQAR, {}),
    (MQAR, {"vocab_size": 64, "pairs": [8]}),
    (MQAR, {"vocab_size": 41, "length": 65, "pairs": [1, 3, 16], "power": 1.0}),
    (MQAR, {"vocab_size": 64, "length": 32, "pairs": [2, 4], "test_length": 64, "test_pairs": [8, 16]}),
    (Copying, {}),
    (Copying, {"length": 10, "noise": 12}),
    (Copying, {"shortest": 4, "length": 8, "noise": 24, "noise_place": "between"}),
    (Copying, {"order": "reversed", "length": 6, "test_length": 12}),
    (Copying, {"order": "sorted", "symbols": 10, "shortest": 2, "length": 8, "test_shortest": 2, "test_length": 16}),
    (Addition, {}),
    (Addition, {"order": "plain", "shortest": 2, "length": 4, "test_length": 30}),
    (Parity, {}),
    (Parity, {"length": 20, "test_length": 40, "running": True}),
    (Parity, {"shortest": 16, "length": 16}),
    (Dyck, {}),
    (Dyck, {"kinds": 2, "shortest": 5, "length": 30, "depth": 3, "test_depth": 8, "test_length": 60}),
    (Induction, {}),
    (Induction, {"hops": [1, 2, 5], "symbols": 4, "length": 40, "test_length": 100}),
    (ListOps, {}),
    (ListOps, {"length": 20, "depth": 2, "test_length": 60, "test_depth": 4, "arguments": 3, "nesting": 0.6}),
    (Needle, {}),
    (Needle, {"needles": 1, "value_length": 1, "shortest": 3, "length": 20, "test_length": 90}),
]
NAMES = [f"{kind.__name__} {' '.join(f'{k}={v}' for k, v in knobs.items())}".strip() for kind, knobs in CASES]


_MADE: dict[str, Any] = {}


def made(kind: type[Any], *, again: bool = False, **knobs: Any) -> Any:
    """Prepared data; the same object for the same knobs, unless it is to be made again."""
    name = f"{kind.__name__} {sorted(knobs.items())}"
    if again or name not in _MADE:
        _MADE[name] = kind(kind.Config(**knobs), cache=NOWHERE)
        _MADE[name].prepare()
    return _MADE[name]


def draw(samples: Any) -> Draw:
    ids = np.asarray(samples, dtype=np.int64)
    return Draw(ids, np.zeros_like(ids), 0)


def batch_of(data: Synthetic, split: Split, count: int = 100) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in data.batch(draw(range(count)), split).items()}


def contents(data: Synthetic, split: Split, count: int) -> set[bytes]:
    """The tokens of each sample, and nothing of its padding."""
    found = set()
    for first in range(0, count, 250):
        batch = {k: v.numpy() for k, v in data.batch(draw(range(first, min(first + 250, count))), split).items()}
        valid = batch.get("valid", np.ones_like(batch["ids"], dtype=bool))
        found |= {ids[there].tobytes() for ids, there in zip(batch["ids"], valid, strict=True)}
    return found
