"""Random structured masks for property tests."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from zoo.contracts.values.mask import Mask


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
