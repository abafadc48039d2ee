"""Attention in a window: the definition, blocks against eager, no T x T anywhere, a cache that forgets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mask_strategy import batch_of, masks
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import CAUSAL, Mask
from zoo.contracts.values.place import Place
from zoo.testing.schemes import Biased, Rotated
from zoo_builtin.attention.grouped_query import GroupedQuery
from zoo_builtin.attention.sliding_window import SlidingWindow


def made(window: int, **knobs: Any) -> SlidingWindow:
    torch.manual_seed(0)
    return SlidingWindow(SlidingWindow.Config(window=window, **knobs), dim=16, heads=4).double()


def outcome(layer: SlidingWindow, x_BTD: Tensor, mask: Mask, **inputs: Any) -> tuple[Tensor, ...]:
    """The output, and the gradients of the input and of all parameters."""
    x_BTD = x_BTD.clone().requires_grad_()
    out_BTD = layer(x_BTD, mask=mask, **inputs)
    weights = torch.linspace(-1, 2, out_BTD.numel(), dtype=out_BTD.dtype).reshape(out_BTD.shape)
    return out_BTD, *torch.autograd.grad((out_BTD * weights).sum(), [x_BTD, *layer.parameters()])


def compare(window: int, x_BTD: Tensor, mask: Mask, **knobs: Any) -> None:
    """Float64 sums over a few hundred keys in another order: 1e-11 is thousands of roundings."""
    fused, eager = (outcome(made(window, kernel=kernel, **knobs), x_BTD, mask) for kernel in ("sdpa", "eager"))
    for got, want in zip(fused, eager, strict=True):
        torch.testing.assert_close(got, want, atol=1e-11, rtol=1e-11)


@settings(max_examples=80)
@given(
    masks().filter(lambda mask: mask.queries == mask.keys and mask.start == mask.first),
    st.integers(1, 6),
    st.sampled_from([1, 2, 4]),
)
def test_blocks_equal_eager_under_every_mask_forward_and_backward(mask: Mask, window: int, kv_heads: int) -> None:
    torch.manual_seed(1)
    compare(window, torch.randn(batch_of(mask), mask.keys, 16, dtype=torch.float64), mask, kv_heads=kv_heads)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [7, 64, 100])
def test_blocks_equal_eager_on_long_padded_documents(causal: bool, window: int) -> None:
    valid_BS = torch.ones(2, 301, dtype=torch.bool)
    valid_BS[0, :40] = False
    documents_BS = torch.arange(301)[None] // torch.tensor([[100], [37]])
    mask = Mask(causal=causal, valid_BS=valid_BS, documents_BS=documents_BS).sized(301, 301)
    assert mask.narrow(window=window).band() is not None
    torch.manual_seed(1)
    compare(window, torch.randn(2, 301, 16, dtype=torch.float64), mask)


@pytest.mark.parametrize("causal", [True, False])
def test_it_is_attention_with_a_mask_of_near_keys(causal: bool) -> None:
    layer, x_BTD = made(3, kernel="sdpa"), torch.randn(1, 9, 16, dtype=torch.float64)
    distance = torch.arange(9)[:, None] - torch.arange(9)
    near = (distance.abs() < 3) & ((distance >= 0) | (not causal))
    q, k, v = (linear(x_BTD).unflatten(-1, (-1, 4)).transpose(1, 2) for linear in (layer.query, layer.key, layer.value))
    want = layer.output(F.scaled_dot_product_attention(q, k, v, attn_mask=near).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x_BTD, mask=Mask(causal=causal).sized(9, 9)), want, atol=1e-12, rtol=0)


def test_a_window_over_everything_is_grouped_query() -> None:
    x_BTD, whole = torch.randn(2, 9, 16, dtype=torch.float64), made(9, kv_heads=2)
    plain = GroupedQuery(GroupedQuery.Config(kv_heads=2), dim=16, heads=4).double()
    plain.load_state_dict(whole.state_dict())
    mask = CAUSAL.sized(9, 9)
    torch.testing.assert_close(whole(x_BTD, mask=mask), plain(x_BTD, mask=mask), atol=1e-12, rtol=0)


def test_a_smaller_window_of_the_mask_wins() -> None:
    x_BTD, mask = torch.randn(2, 9, 16, dtype=torch.float64), Mask(window=2).sized(9, 9)
    torch.testing.assert_close(made(5)(x_BTD, mask=mask), made(2)(x_BTD, mask=Mask().sized(9, 9)), atol=1e-12, rtol=0)


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that an operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.elements = max([self.elements, *sizes])
        return result


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_nothing_in_a_pass_has_as_many_elements_as_there_are_pairs(causal: bool, training: bool) -> None:
    """Under padding and documents, forward and backward, with dropout of weights (which torch doesn't fuse) too."""
    largest = {}
    for tokens in (512, 1024):
        layer = SlidingWindow(SlidingWindow.Config(window=8), dim=16, heads=4, dropout=0.1).train(training)
        valid_BS, documents_BS = torch.ones(1, tokens, dtype=torch.bool), torch.arange(tokens)[None] // 100
        valid_BS[:, -5:] = False
        with Largest() as seen:
            mask = Mask(causal=causal, valid_BS=valid_BS, documents_BS=documents_BS).sized(tokens, tokens)
            outcome(layer, torch.randn(1, tokens, 16), mask)  # type: ignore[arg-type]
        largest[tokens] = seen.elements
    assert largest[1024] < 1.1 * 2 * largest[512]
    assert largest[1024] < 1024 * 1024 / 10


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(1, 6), st.sampled_from(["eager", "sdpa"]))
def test_chunks_through_the_rolling_cache_equal_the_full_pass(chunks: list[int], window: int, kernel: str) -> None:
    layer, scheme = made(window, kernel=kernel), Rotated.part()(dim=16, heads=4, size=4)
    torch.manual_seed(1)
    x_BTD, cache, outs = torch.randn(2, sum(chunks), 16, dtype=torch.float64), Cache(), []
    mask, at_BTA, keys_BSA = Cache().extend(CAUSAL, x_BTD)
    want = layer(x_BTD, mask=mask, place=Place(scheme, at_BTA, keys_BSA))
    with torch.no_grad():
        for piece_BTD in x_BTD.split(chunks, 1):
            mask, at_BTA, keys_BSA = cache.extend(CAUSAL, piece_BTD)
            place = Place(scheme, at_BTA, keys_BSA)
            outs.append(layer(piece_BTD, mask=mask, place=place, cache=cache.layer((0, "self"))))
    torch.testing.assert_close(torch.cat(outs, 1), want, atol=1e-12, rtol=0)


def test_the_cache_keeps_a_window() -> None:
    layer, cache, sizes = made(4), Cache(), []
    for _ in range(10):
        mask, _, _ = cache.extend(CAUSAL, torch.zeros(1, 1))
        with torch.no_grad():
            layer(torch.randn(1, 1, 16, dtype=torch.float64), mask=mask, cache=cache.layer((0, "self")))
        sizes.append(cache.bytes())
    assert sizes == [tokens * 2 * 16 * 8 for tokens in (1, 2, 3, 4, 4, 4, 4, 4, 4, 4)]


def test_a_long_prompt_leaves_a_window_behind() -> None:
    layer, cache = made(4), Cache()
    mask, _, _ = cache.extend(CAUSAL, torch.zeros(1, 100))
    with torch.no_grad():
        layer(torch.randn(1, 100, 16, dtype=torch.float64), mask=mask, cache=cache.layer((0, "self")))
    assert cache.bytes() == 4 * 2 * 16 * 8
    assert {tensor.untyped_storage().nbytes() for _, tensor in cache.layer((0, "self")).tensors()} == {4 * 16 * 8}


def test_a_bias_on_the_scores_is_still_right() -> None:
    scheme, x_BTD = Biased.part()(dim=16, heads=4, size=4), torch.randn(1, 9, 16, dtype=torch.float64)
    at_BTA, mask = torch.arange(9)[None, :, None], CAUSAL.sized(9, 9)
    fused, eager = (
        outcome(made(3, kernel=kernel), x_BTD, mask, place=Place(scheme, at_BTA, at_BTA))
        for kernel in ("sdpa", "eager")
    )
    for got, want in zip(fused, eager, strict=True):
        torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


def test_what_a_window_can_not_be() -> None:
    with pytest.raises(ValueError, match="window must be at least 1, the query's own key, got 0"):
        made(0)
    with pytest.raises(ValueError, match="SlidingWindow was asked for cross"):
        made(2)(torch.zeros(1, 2, 16).double(), context_BSD=torch.zeros(1, 3, 16).double(), mask=Mask().sized(2, 3))
