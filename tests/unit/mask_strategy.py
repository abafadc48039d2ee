"""Random structured masks for property tests."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from zoo.contracts.values.mask import Mask
from zoo.contracts.values.pattern import Both, Pattern
from zoo_builtin.attention.big_bird import SparseGraph
from zoo_builtin.attention.block_local import NearBlocks
from zoo_builtin.attention.dilated_window import Dilated
from zoo_builtin.attention.global_local import FirstQueries, WindowAndFirst
from zoo_builtin.attention.strided import FixedFactors, StridedFactors


@st.composite
def masks(draw: st.DrawFn) -> Mask:
    """A random mask, its queries somewhere among its keys."""
    batch, keys = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    queries = draw(st.integers(1, keys))
    first = draw(st.integers(0, 3))
    start = first + draw(st.integers(0, keys - queries))

    def drawn(elements: st.SearchStrategy[Any], *shape: int) -> Tensor:
        flat = draw(st.lists(elements, min_size=math.prod(shape), max_size=math.prod(shape)))
        return torch.tensor(flat).reshape(shape)

    return Mask(
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 6)),
        prefix_B=drawn(st.integers(0, 5), batch) if draw(st.booleans()) else None,
        valid_BS=drawn(st.booleans(), batch, keys) if draw(st.booleans()) else None,
        documents_BS=drawn(st.integers(0, 2), batch, keys) if draw(st.booleans()) else None,
    ).sized(queries, keys, start=start, first=first)


def batch_of(mask: Mask) -> int:
    """Rows that the mask speaks of, 1 if it is the same for all."""
    for tensor in (mask.valid_BS, mask.documents_BS, mask.prefix_B):
        if tensor is not None:
            return tensor.shape[0]
    return 1


@dataclasses.dataclass(frozen=True)
class Checkered(Pattern):
    """A pattern as an outsider would write one, the law only: no blocks, and an odd place sees no odd one."""

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return (query % 2 == 0) | (key % 2 == 0)


def patterns() -> st.SearchStrategy[Pattern]:
    """Every built-in pattern in small sizes, an outsider's, and two at once."""
    small = st.integers(1, 4)
    graph = st.builds(
        SparseGraph,
        block=st.integers(1, 3),
        near=st.integers(0, 1),
        first=st.integers(0, 2),
        random=st.integers(0, 2),
        seed=st.integers(0, 9),
        causal=st.booleans(),
        count=st.none() | st.integers(1, 20),
    )
    one = st.one_of(
        st.builds(Dilated, small, st.integers(1, 3)),
        st.builds(NearBlocks, small, st.integers(0, 2)),
        st.sampled_from([(True, True), (True, False), (False, True)]).flatmap(
            lambda which: (
                st.builds(StridedFactors, small, st.just(which[0]), st.just(which[1]))
                | st.builds(FixedFactors, st.integers(3, 4), st.integers(1, 3), st.just(which[0]), st.just(which[1]))
            )
        ),
        st.builds(WindowAndFirst, small, small),
        st.builds(FirstQueries, small),
        graph,
        st.just(Checkered()),
    )
    return one | st.builds(Both, one, one)


@st.composite
def patterned(draw: st.DrawFn, most: int = 24) -> Mask:
    """A mask with a pattern over rows of any length: padding, documents in one piece each, a cache that has rolled."""
    batch, whole = draw(st.integers(1, 2)), draw(st.integers(1, most))
    queries = draw(st.just(whole) | st.integers(1, whole))

    def rows(elements: st.SearchStrategy[Any], count: int) -> Tensor:
        return torch.tensor([draw(st.lists(elements, min_size=count, max_size=count)) for _ in range(batch)])

    valid_BS = documents_BS = None
    if draw(st.booleans()):
        valid_BS = rows(st.booleans(), whole)
        if draw(st.booleans()):  # padding on one side, as batches have it
            valid_BS = valid_BS.sort(1, descending=draw(st.booleans())).values
    if draw(st.booleans()):
        documents_BS = rows(st.integers(0, 3).map(lambda draw: int(draw == 0)), whole).cumsum(1)
    mask = Mask(
        causal=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 8)),
        prefix_B=rows(st.integers(0, 6), 1)[:, 0] if draw(st.booleans()) else None,
        valid_BS=valid_BS,
        documents_BS=documents_BS,
    )
    mask = mask.sized(queries, whole, start=whole - queries).suffix(draw(st.just(whole) | st.integers(queries, whole)))
    return mask.narrow(pattern=draw(patterns()))
