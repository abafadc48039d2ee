"""The attentions of the zoo: kernels against the eager reference, heads, empty rows, half precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mask_strategy import batch_of, masks
from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.mask import CAUSAL, EVERYTHING, Mask
from zoo.contracts.values.notes import Notes
from zoo_builtin.attention.grouped_query import GroupedQuery
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.attention.single_head import SingleHead


def made(cls: type[HeadedAttention], dim: int = 16, heads: int = 4, **knobs: Any) -> HeadedAttention:
    torch.manual_seed(0)
    return cls(cls.Config(**knobs), dim=dim, heads=heads).double()


def tokens(mask: Mask, dim: int = 16) -> Tensor:
    return torch.randn(batch_of(mask), mask.keys, dim, dtype=torch.float64)


@settings(max_examples=50)
@given(masks().filter(lambda mask: mask.queries == mask.keys), st.sampled_from([1, 2, 4]))
def test_fused_equals_eager_under_every_mask(mask: Mask, kv_heads: int) -> None:
    eager, fused = (made(GroupedQuery, kv_heads=kv_heads, kernel=kernel) for kernel in ("eager", "sdpa"))
    x = tokens(mask)
    torch.testing.assert_close(fused(x, mask=mask), eager(x, mask=mask), atol=1e-12, rtol=0)


def test_grouped_heads_share_in_order() -> None:
    """Query heads 0, 1 read key/value head 0 and 2, 3 read head 1: repeat_interleave, not tiling."""
    layer = made(GroupedQuery, kv_heads=2, kernel="eager")
    x = torch.randn(1, 5, 16, dtype=torch.float64)
    q, k, v = (linear(x).unflatten(-1, (-1, 4)).transpose(1, 2) for linear in (layer.query, layer.key, layer.value))
    expected = F.scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
    tiled = F.scaled_dot_product_attention(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1))
    out = layer(x, mask=EVERYTHING.sized(5, 5))
    torch.testing.assert_close(out, layer.output(expected.transpose(1, 2).flatten(2)))
    assert (out - layer.output(tiled.transpose(1, 2).flatten(2))).abs().max() > 1e-3


def test_limits_of_grouped_query() -> None:
    x, mask = torch.randn(2, 7, 16, dtype=torch.float64), CAUSAL.sized(7, 7)
    full, multi = made(GroupedQuery, kv_heads=4), made(MultiHead)
    torch.testing.assert_close(full(x, mask=mask), multi(x, mask=mask))
    assert made(GroupedQuery, kv_heads=1).key.weight.shape == (4, 16)


def test_heads_that_do_not_divide_are_named() -> None:
    with pytest.raises(ValueError, match="6 heads can't share 4 key/value heads evenly"):
        made(GroupedQuery, dim=24, heads=6, kv_heads=4)
    with pytest.raises(ValueError, match="width 30 is not divisible by 4 heads"):
        made(MultiHead, dim=30, heads=4)
    with pytest.raises(ValueError, match="kv_heads says 2; use grouped_query"):
        made(MultiHead, kv_heads=2)
    with pytest.raises(ValueError, match="single_head has one head, it was given 4"):
        made(SingleHead)
    with pytest.raises(ValueError, match="SingleHead has no kernel sdpa; it has auto, eager"):
        made(SingleHead, heads=1, kernel="sdpa")


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_a_query_with_every_key_masked_gives_exactly_zero(kernel: str) -> None:
    layer = made(MultiHead, kernel=kernel)
    documents = torch.tensor([[1, 1, 2]])
    mask = Mask(documents_BS=documents, documents_BT=torch.tensor([[1, 2, 9]])).sized(3, 3)
    x = torch.randn(1, 3, 16, dtype=torch.float64, requires_grad=True)
    out = layer(x, mask=mask)
    assert torch.equal(out[0, 2], layer.output.bias)
    out.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_half_precision_with_padding(dtype: torch.dtype, kernel: str) -> None:
    layer = made(MultiHead, kernel=kernel).to(dtype)
    valid = torch.tensor([[True, True, False], [False, False, False]])
    x = torch.randn(2, 3, 16).to(dtype)
    out = layer(x, mask=Mask(valid_BS=valid).sized(3, 3))
    assert out.dtype == dtype
    assert torch.isfinite(out).all()
    assert torch.equal(out[1], layer.output.bias.expand(3, -1))


def test_weights_of_half_precision_sum_to_one() -> None:
    layer = made(MultiHead, kernel="eager").bfloat16()
    notes = Notes(maps=True)
    layer(torch.randn(1, 9, 16).bfloat16(), mask=CAUSAL.sized(9, 9), notes=notes)
    weights = notes.maps(0)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 4, 9), atol=1e-3, rtol=0)


def test_a_variant_that_forgets_the_mask_is_stopped() -> None:
    class Forgetful(HeadedAttention):
        def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Any) -> Tensor:
            return (q_BNTH @ k_BGSH.transpose(-1, -2)).softmax(-1) @ v_BGSV

    with pytest.raises(RuntimeError, match=r"Forgetful\.attend never asked for the mask"):
        made(Forgetful)(torch.randn(1, 3, 16, dtype=torch.float64), mask=CAUSAL.sized(3, 3))


def test_score_heads_that_do_not_fit_are_named() -> None:
    class Paired(HeadedAttention):
        def __init__(self, config: Any, *, heads: int, **parent: Any) -> None:
            super().__init__(config, heads=heads, score_heads=2 * heads, **parent)

        def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Any) -> Tensor:
            return call.softmax(call.scores(q_BNTH, k_BGSH)) @ torch.cat([v_BGSV, v_BGSV], 1)

    with pytest.raises(ValueError, match="head size 15 of 4 heads can't be shared by 8 score heads"):
        made(Paired, dim=60)
    with pytest.raises(ValueError, match="head size 1 of 16 heads can't be shared by 32 score heads"):
        made(Paired, heads=16)
    with pytest.raises(ValueError, match=r"\(B, N, T, V\) = \(1, 4, 3, 4\), it returned \(1, 8, 3, 4\)"):
        made(Paired)(torch.randn(1, 3, 16, dtype=torch.float64), mask=CAUSAL.sized(3, 3))


@pytest.mark.parametrize(
    ("bias", "output_bias", "expected"),
    [
        (True, None, ["key", "output", "query", "value"]),
        (True, False, ["key", "query", "value"]),
        (False, None, []),
        (False, True, ["output"]),
    ],
)
def test_the_output_projection_can_differ_in_its_bias(
    bias: bool, output_bias: bool | None, expected: list[str]
) -> None:
    layer = made(MultiHead, bias=bias, output_bias=output_bias)
    assert sorted(name.removesuffix(".bias") for name in layer.state_dict() if name.endswith("bias")) == expected


def test_a_bias_of_no_output_projection_is_refused() -> None:
    with pytest.raises(ValueError, match="SingleHead has no output projection, leave output_bias null"):
        made(SingleHead, heads=1, output_bias=True)


def test_what_is_not_offered_is_refused() -> None:
    class OneWay(HeadedAttention):
        offers = frozenset({"causal"})

        def attend(self, q_BNTH: Tensor, k_BGSH: Tensor, v_BGSV: Tensor, call: Any) -> Tensor:
            return call.softmax(call.scores(q_BNTH, k_BGSH)) @ v_BGSV

    layer = made(OneWay)
    x = torch.randn(1, 3, 16, dtype=torch.float64)
    with pytest.raises(ValueError, match="OneWay was asked for bidirectional; it offers causal"):
        layer(x, mask=EVERYTHING.sized(3, 3))


def test_maps_and_a_fused_kernel_are_refused_together() -> None:
    layer = made(MultiHead, kernel="sdpa")
    with pytest.raises(ValueError, match="maps need the eager kernel, the recipe asks for sdpa"):
        layer(torch.randn(1, 3, 16, dtype=torch.float64), mask=CAUSAL.sized(3, 3), notes=Notes(maps=True))


def test_cross_attention_computes_its_keys_once() -> None:
    from zoo.contracts.values.cache import LayerCache

    layer, cache = made(MultiHead), LayerCache()
    x, context = torch.randn(1, 2, 16, dtype=torch.float64), torch.randn(1, 5, 16, dtype=torch.float64)
    mask = EVERYTHING.sized(2, 5)
    first = layer(x, context_BSD=context, mask=mask, cache=cache)
    again = layer(x, context_BSD=torch.full_like(context, torch.nan), mask=mask, cache=cache)
    assert torch.equal(first, again)
    torch.testing.assert_close(first, layer(x, context_BSD=context, mask=mask))
