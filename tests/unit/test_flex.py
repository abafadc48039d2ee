"""FlexAttention's rendering of a mask against the eager path, forward, which is all that torch has on a CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.contracts.values.call import Call
from zoo.contracts.values.mask import CAUSAL, Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.testing.schemes import Biased
from zoo_builtin.attention.big_bird import SparseGraph
from zoo_builtin.attention.block_local import NearBlocks
from zoo_builtin.attention.dilated_window import Dilated

VALID_BS = torch.arange(40) >= torch.tensor([[3], [40]])  # the second row has no token at all
DOCUMENTS_BS = torch.arange(40)[None] // torch.tensor([[9], [14]])
PREFIX_B = torch.tensor([5, 0])
GRAPH = SparseGraph(block=3, near=1, first=1, random=1, seed=3, causal=True, count=None)


def call(mask: Mask, place: Place = NOWHERE, dropout: float = 0.0) -> Call:
    own: dict[str, Any] = {"scale": 0.5, "x_BTD": torch.zeros(0), "cache": None, "notes": Notes(), "layer": 0}
    return Call(mask=mask, place=place, kind="self", kernel="flex", dtype=torch.float64, dropout=dropout, **own)


def heads(mask: Mask) -> tuple[Tensor, Tensor, Tensor]:
    """Four heads of queries and two of keys and values."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 4, mask.queries, 8), (2, 2, mask.keys, 8), (2, 2, mask.keys, 8))
    q, k, v = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return q, k, v


@pytest.mark.slow
@pytest.mark.parametrize(
    "mask",
    [
        CAUSAL.sized(40, 40),
        Mask().sized(7, 33),
        Mask(causal=True, window=5, valid_BS=VALID_BS).sized(1, 40, start=39).suffix(6),
        Mask(
            causal=True, prefix_B=PREFIX_B, valid_BS=VALID_BS, documents_BS=DOCUMENTS_BS, pattern=NearBlocks(4, 1)
        ).sized(40, 40),
        Mask(documents_BS=DOCUMENTS_BS, pattern=Dilated(3, 2)).sized(13, 40, start=27),
        Mask(causal=True, valid_BS=VALID_BS, pattern=GRAPH).sized(40, 40),
    ],
    ids=["causal", "open", "one step of a cache", "everything at once", "dilated", "big bird"],
)
def test_flex_equals_eager(mask: Mask) -> None:
    q, k, v = heads(mask)
    flex, eager = call(mask), call(mask)
    want = eager.emptied(eager.mix(eager.softmax(eager.scores(q, k)), v))
    torch.testing.assert_close(flex.emptied(flex.flex(q, k, v)), want, atol=1e-12, rtol=0)


@pytest.mark.slow
def test_a_bias_is_added_to_the_scores() -> None:
    mask, at_BTA = CAUSAL.sized(40, 40), torch.arange(40)[None, :, None]
    place = Place(Biased.part()(dim=32, heads=4, size=8).double().requires_grad_(False), at_BTA, at_BTA)
    q, k, v = heads(mask)
    flex, eager = call(mask, place), call(mask, place)
    want = eager.mix(eager.softmax(eager.scores(q, k)), v)
    torch.testing.assert_close(flex.flex(q, k, v), want, atol=1e-12, rtol=0)


def test_what_it_can_not_do_is_said() -> None:
    q, k, v = heads(CAUSAL.sized(4, 4))
    with pytest.raises(ValueError, match="flex kernel has no backward pass on a CPU: train with kernel sdpa"):
        call(CAUSAL.sized(4, 4)).flex(q.requires_grad_(), k, v)
    with pytest.raises(ValueError, match=r"flex kernel has no dropout of weights, it is 0\.1: use sdpa"):
        call(CAUSAL.sized(4, 4), dropout=0.1).flex(q.detach(), k, v)
