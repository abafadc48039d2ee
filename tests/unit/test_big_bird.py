"""The sparse random graph of BigBird: which blocks are drawn, how evenly, and that company changes nothing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.contracts.values.mask import CAUSAL, Mask
from zoo_builtin.attention.big_bird import BigBird, SparseGraph


def big_bird() -> BigBird:
    torch.manual_seed(0)
    return BigBird.part(block=2, random=1)(dim=16, heads=4, layers=2, length=64).double()


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("count", [None, 40])
def test_random_blocks_are_others_than_those_seen_anyway(causal: bool, count: int | None) -> None:
    graph = SparseGraph(block=2, near=1, first=2, random=3, seed=5, causal=causal, count=count)
    chosen = torch.stack(graph.chosen(torch.arange(40)), -1).tolist()
    for i, blocks in enumerate(chosen):
        drawn = [block for block in blocks if block >= 0]
        reach = i if causal else count or 2 ** i.bit_length()
        others = [j for j in range(2, reach) if abs(i - j) > 1]
        assert len(set(drawn)) == len(drawn) == min(3, len(others))
        assert set(drawn) <= set(others)


def test_random_blocks_are_drawn_evenly_and_differ_by_seed() -> None:
    """Of 40 candidates each is drawn by 4000 seeds about 100 times, with a deviation of 9.9."""
    times = torch.zeros(48, dtype=torch.int64)
    for seed in range(4000):
        graph = SparseGraph(block=1, near=1, first=5, random=1, seed=seed, causal=False, count=48)
        times[int(graph.chosen(torch.tensor(20))[0])] += 1
    drawn = times[times > 0]
    assert drawn.numel() == 40
    assert int((drawn - 100).abs().max()) < 5 * 9.9


def test_big_bird_sees_near_first_and_random_blocks_and_no_others() -> None:
    layer = big_bird()
    allowed = layer.narrow(Mask().sized(64, 64)).dense(torch.device("cpu"))
    assert allowed is not None
    blocks = allowed[0, 0].unflatten(0, (32, 2)).unflatten(2, (32, 2)).amax((1, 3)).bool()
    for i in range(1, 32):
        seen = blocks[i].nonzero()[:, 0].tolist()
        near = {0, i - 1, i, i + 1} & set(range(32))
        assert near <= set(seen) and len(seen) == len(near) + 1
    assert blocks[0].all()


def test_the_same_tokens_have_the_same_graph_in_any_batch() -> None:
    layer, x_BTD = big_bird(), noise(1, 9, 16)
    alone = layer(x_BTD, mask=Mask().sized(9, 9))
    padded_BTD = F.pad(x_BTD, (0, 0, 7, 4))
    valid_BS = ((torch.arange(20) >= 7) & (torch.arange(20) < 16))[None]
    torch.testing.assert_close(
        layer(padded_BTD, mask=Mask(valid_BS=valid_BS).sized(20, 20))[:, 7:16], alone, atol=1e-12, rtol=0
    )


def test_layers_draw_other_blocks() -> None:
    parts = [BigBird.part(block=2)(dim=16, heads=4, layer=layer, layers=2, length=64) for layer in (0, 1)]
    masks = [part.narrow(CAUSAL.sized(64, 64)).dense(torch.device("cpu")) for part in parts]
    assert not torch.equal(masks[0], masks[1])  # type: ignore[arg-type]
