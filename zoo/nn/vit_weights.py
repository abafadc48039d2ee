"""Layouts of a vision transformer's tensors that other libraries share: a kernel, and rows behind an axis of 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from zoo.contracts.architecture import Architecture
from zoo.contracts.position import Position
from zoo.contracts.weights import Match


def schemes(model: Architecture) -> list[Position]:
    """The position schemes of a vision transformer, one for all layers or one for each."""
    return list(cast(Any, model).stack.positions)


def kernel_match(model: Architecture, theirs: str) -> Match:
    """The patches' projection, (D, P), as the kernel of a convolution, (D, channels, height, width)."""
    patch = model.embedding.patch_size
    assert patch is not None
    return Match(theirs, ("embedding.project.weight",), shape=(model.embedding.dim, -1, *patch))


def row_matches(model: Architecture, *, classes: Sequence[str], registers: str, table: str) -> Iterator[Match]:
    """Class tokens, registers and learned positions, each as (1, rows, D).

    Args:
        model: a vision transformer.
        classes: their names of the first class token, the second, ...
        registers: of all registers.
        table: of the positions.
    """
    rows = {name: f"embedding.class_tokens.{index}.weight" for index, name in enumerate(classes)}
    rows[registers] = "embedding.registers.weight"
    if schemes(model)[0].acts("embed"):
        rows[table] = "stack.positions.0.table.weight"
    for theirs, ours in rows.items():
        yield Match(theirs, (ours,), shape=(1, -1, model.embedding.dim))
