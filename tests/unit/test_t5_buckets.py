"""T5's relative positions: the published buckets, all of them as transformers has them, and where they act."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.t5.modeling_t5 import T5Attention

from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import CAUSAL
from zoo.contracts.values.place import Place
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.position.t5 import RelativeBuckets


def made(*, causal: bool = False, heads: int = 2, **knobs: Any) -> RelativeBuckets:
    torch.manual_seed(0)
    return RelativeBuckets.part(**knobs)(dim=8, heads=heads, size=4, causal=causal)


def bucket_table(*, causal: bool) -> torch.Tensor:
    slots = torch.arange(10)
    return made(causal=causal).buckets(slots[None, :] - slots[:, None])


def test_buckets_near_by() -> None:
    both, causal = bucket_table(causal=False), bucket_table(causal=True)
    assert both[0].tolist() == [0, 17, 18, 19, 20, 21, 22, 23, 24, 24]
    assert both[9].tolist() == [8, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert causal[9].tolist() == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert causal[0].tolist() == [0] * 10


@pytest.mark.parametrize(("causal", "expected"), [(False, [15, 31, 15, 15, 14]), (True, [31, 0, 31, 31, 26])])
def test_buckets_far_away(causal: bool, expected: list[int]) -> None:
    far = torch.tensor([-200, 200, -128, -127, -64])
    assert made(causal=causal).buckets(far).tolist() == expected


@given(st.booleans(), st.sampled_from([4, 8, 16, 32, 64]), st.integers(33, 1000))
def test_every_bucket_is_the_one_of_transformers(causal: bool, buckets: int, max_distance: int) -> None:
    distances = torch.arange(-2000, 2001)
    want = T5Attention._relative_position_bucket(
        distances, bidirectional=not causal, num_buckets=buckets, max_distance=max_distance
    )
    assert torch.equal(made(causal=causal, buckets=buckets, max_distance=max_distance).buckets(distances), want)


def test_the_bias_is_a_row_of_the_table_for_each_head() -> None:
    scheme, at_BTA = made(heads=3), torch.tensor([0, 1, 2, 7, 200])[None, :, None]
    bias = Place(scheme, at_BTA, at_BTA).bias(torch.zeros(1, 3, 5, 4), torch.zeros(1, 3, 5, 4), None)  # type: ignore[arg-type]
    assert bias is not None and bias.shape == (1, 3, 5, 5)
    assert torch.equal(bias[0, :, 4, 0], scheme.table.weight[15])  # 200 before
    assert torch.equal(bias[0, :, 0, 4], scheme.table.weight[31])  # 200 after
    assert torch.equal(bias[0, :, 2, 1], scheme.table.weight[1])


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_cached_steps_have_the_bias_too(kernel: str) -> None:
    scheme = made(causal=True, heads=4).double()
    layer = MultiHead.part(kernel=kernel, scale=1.0)(dim=16, heads=4).double()
    torch.manual_seed(1)
    x_BTD, cache, outs = torch.randn(2, 12, 16, dtype=torch.float64), Cache(), []
    mask, at_BTA, keys_BSA = Cache().extend(CAUSAL, x_BTD)
    want = layer(x_BTD, mask=mask, place=Place(scheme, at_BTA, keys_BSA))
    for piece_BTD in x_BTD.split([5, 1, 1, 3, 2], 1):
        mask, at_BTA, keys_BSA = cache.extend(CAUSAL, piece_BTD)
        place = Place(scheme, at_BTA, keys_BSA)
        outs.append(layer(piece_BTD, mask=mask, place=place, cache=cache.layer((0, "self"))))
    torch.testing.assert_close(torch.cat(outs, 1), want, atol=1e-12, rtol=0)
    assert (layer(x_BTD, mask=Cache().extend(CAUSAL, x_BTD)[0]) - want).abs().max() > 1e-2


def test_buckets_that_do_not_work_out_are_named() -> None:
    with pytest.raises(ValueError, match="31 buckets can't be dealt out to 2 sides, at least 2 to each"):
        made(buckets=31)
    with pytest.raises(ValueError, match="max_distance must be above 8, the distances that have their own"):
        made(max_distance=8)
    assert RelativeBuckets.needs() == {"bias"}
