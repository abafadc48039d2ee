"""The terms of a ``compare`` block: what is made equal, tuned and spent, who runs it, and what counts as equal."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from zoo.component import did_you_mean
from zoo.errors import UserError
from zoo.recipe.compare_block import Block, items
from zoo.recipe.node import Node
from zoo.recipe.shape import name_of
from zoo.registry import Registry

MATCHED = ("parameters", "macs", "cache_bytes", "state")
"""What variants can be given as much of."""
TOLERANCE = 0.01


@dataclasses.dataclass(frozen=True)
class Match:
    """What all variants shall have as much of.

    Attributes:
        quantity: one of ``MATCHED``.
        value: how much, or the variant that has it already.
        tolerance: largest deviation, as a share of the value.
    """

    quantity: str
    value: float | str
    tolerance: float


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """How the variants of a comparison are treated alike, and judged.

    Attributes:
        match: what all of them have as much of, where anything is asked for.
        tune: values to try for each of some key paths.
        seconds: training time of a cell, in place of its steps.
        equivalence: margin of each task that has one, in the unit of its metric.
        executor: name of the executor, and its knobs.
        threads: of torch, in each cell.
        verdicts: whether a verdict is wanted.
    """

    match: Match | None
    tune: Mapping[str, Sequence[Node]]
    seconds: float | None
    equivalence: Mapping[str, float]
    executor: Mapping[str, Any]
    threads: int
    verdicts: bool


def read_terms(block: Block, variants: Mapping[str, object], tasks: Mapping[str, object], registry: Registry) -> Terms:
    """The terms of a block; mistakes are collected there."""
    written = block.written
    return Terms(
        match=_match(block, variants) if "match" in written else None,
        tune=_tune(block) if "tune" in written else {},
        seconds=_seconds(block) if "budget" in written else None,
        equivalence=_equivalence(block, tasks) if "equivalence" in written else {},
        executor=_executor(block, registry) if "executor" in written else {"name": "local"},
        threads=_threads(block) if "threads" in written else 1,
        verdicts=written["verdicts"].value is True if "verdicts" in written else True,
    )


def _match(block: Block, variants: Mapping[str, object]) -> Match | None:
    node = block.written["match"]
    said = dict(items(node))
    tolerance = _share(block, said.pop("tolerance", None))
    if len(said) != 1 or not said.keys() <= {*MATCHED}:
        near = "".join(did_you_mean(key, MATCHED) for key in said if key not in MATCHED)
        block.refuse(node, ("match",), f"takes one quantity and a tolerance{near}", f"name one of {', '.join(MATCHED)}")
        return None
    quantity, value = next(iter(said.items()))
    path = ("match", quantity)
    if isinstance(value.value, str) and value.value not in variants:
        near = did_you_mean(value.value, variants)
        block.refuse(value, path, f"is {value.value!r}, which is no variant{near}", "write a number, or a variant")
    elif not isinstance(value.value, str) and not _is_positive(value.value):
        block.refuse(value, path, f"is {value.value}", "write a number above 0, or the name of a variant")
    return Match(quantity, value.plain(), tolerance)


def _share(block: Block, node: Node | None) -> float:
    """A tolerance, written as 0.01 or 1%."""
    if node is None:
        return TOLERANCE
    text, share = str(node.value), math.nan
    with contextlib.suppress(ValueError):
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 < share < 1:
        block.refuse(node, ("match", "tolerance"), f"is {text!r}", "write a share, such as 1% or 0.01")
    return share


def _is_positive(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _tune(block: Block) -> dict[str, Sequence[Node]]:
    grid: dict[str, Sequence[Node]] = {}
    for key, node in items(block.written["tune"]):
        if block.is_list(key, node, "tune"):
            assert isinstance(node.value, list)
            grid[key] = node.value
            values = [item.plain() for item in node.value]
            if any(value in values[:place] for place, value in enumerate(values)):
                block.refuse(node, ("tune", key), "has a value twice", "list each once")
    return grid


def _seconds(block: Block) -> float | None:
    node = block.written["budget"]
    said = {key: value.value for key, value in items(node)}
    seconds = said.pop("seconds", None)
    if said or not _is_positive(seconds):
        block.refuse(node, ("budget",), "takes seconds, a number above 0", "write budget: {seconds: 60}")
        return None
    return float(seconds)


def _equivalence(block: Block, tasks: Mapping[str, object]) -> dict[str, float]:
    node = block.written["equivalence"]
    by_task = dict(items(node)) if isinstance(node.value, dict) else dict.fromkeys(tasks, node)
    margins = {}
    for task, margin in by_task.items():
        if task not in tasks:
            near = did_you_mean(task, tasks)
            block.refuse(margin, ("equivalence", task), f"is no task{near}", f"choose one of {', '.join(tasks)}")
        elif _is_positive(margin.value):
            margins[task] = float(margin.value)
        else:
            block.refuse(margin, ("equivalence",), f"is {margin.value}", "write a margin above 0, in the metric's unit")
    return margins


def _executor(block: Block, registry: Registry) -> dict[str, Any]:
    node = block.written["executor"]
    name = name_of(node.value)
    if name is None:
        block.refuse(node, ("executor",), "has no name", "write executor: {name: slurm, KNOB: VALUE}")
        return {}
    try:
        registry.find("executor", name)
    except UserError as error:
        block.refuse(node, ("executor",), error.what, error.fix)
    plain = node.plain()
    return plain if isinstance(plain, dict) else {"name": name}


def _threads(block: Block) -> int:
    node = block.written["threads"]
    assert isinstance(node.value, int)
    if node.value < 1:
        block.refuse(node, ("threads",), f"is {node.value}", "write a whole number of at least 1")
    return node.value
