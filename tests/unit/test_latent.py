"""Multi-head latent attention: two forms of one function, what its cache holds, which form takes less."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attention_samples import EXACT, MASKS, in_chunks, made, run, tokens, weights_of
from mask_strategy import batch_of, masks
from zoo.contracts.values.cache import Cache, LayerCache
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import Place
from zoo.testing.masks import may_attend, padding
from zoo.testing.schemes import Biased, Rotated
from zoo_builtin.attention.latent import Latent

FORMS = [{"absorb": absorb, "kernel": kernel} for absorb in ("never", "always") for kernel in ("eager", "sdpa")]
SIZES: dict[str, Any] = {"rank": 6, "rotated": 4, "size": 3, "value_size": 5}


def held_to(layer: Latent, x_BTD: Tensor, mask: Mask) -> Tensor:
    """The equations head by head and query by query, without a rotation."""
    latent = layer.latent(x_BTD)
    c, shared = latent[..., :6], latent[..., 6:]
    c = layer.latent_norm.weight * c / (c.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    z = x_BTD
    if layer.config.query_rank is not None:
        z = layer.query_latent(x_BTD)
        z = layer.query_norm.weight * z / (z.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    allowed = may_attend(mask, *x_BTD.shape[:2])
    out = torch.zeros(*x_BTD.shape[:2], 4 * 5, dtype=x_BTD.dtype)
    for b, n, t in torch.cartesian_prod(*map(torch.arange, (len(x_BTD), 4, x_BTD.shape[1]))).tolist():
        q = layer.query.weight[7 * n : 7 * n + 7] @ z[b, t]
        made_of = layer.key_value.weight[8 * n : 8 * n + 8]
        seen = allowed[b, t].nonzero()[:, 0]
        if len(seen):
            products = [q @ torch.cat([made_of[:3] @ c[b, s], shared[b, s]]) / 7**0.5 for s in seen]
            weights = torch.stack(products).softmax(0)
            values = [made_of[3:] @ c[b, s] for s in seen]
            out[b, t, 5 * n : 5 * n + 5] = sum(w * v for w, v in zip(weights, values, strict=True))
    return layer.output(out)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("more", [{}, {"query_rank": 5}, {"bias": True}])
def test_it_is_its_equations(mask: str, form: dict[str, Any], more: dict[str, Any]) -> None:
    layer = made(Latent, **SIZES, **form, **more)
    with torch.no_grad():
        want = held_to(layer, tokens(), MASKS[mask])
    torch.testing.assert_close(run(layer, tokens(), MASKS[mask]), want, rtol=0, atol=EXACT)


@settings(max_examples=25, deadline=None)
@given(masks().filter(lambda mask: mask.queries == mask.keys), st.sampled_from([None, Rotated, Biased]))
def test_all_forms_are_equal_under_every_mask_forward_and_backward(mask: Mask, scheme: Any) -> None:
    outcomes = []
    for form in FORMS:
        layer = made(Latent, query_rank=5, **SIZES, **form)
        x_BTD = tokens(batch_of(mask), mask.keys).requires_grad_()
        at_BTA = torch.arange(mask.keys)[None, :, None]
        place = None if scheme is None else Place(scheme.part()(dim=16, heads=4, size=4), at_BTA, at_BTA)
        out_BTD = layer(x_BTD, mask=mask, **({} if place is None else {"place": place}))
        weights = torch.linspace(-1, 2, out_BTD.numel(), dtype=out_BTD.dtype).reshape(out_BTD.shape)
        outcomes.append([out_BTD, *torch.autograd.grad((out_BTD * weights).sum(), [x_BTD, *layer.parameters()])])
    for other in outcomes[1:]:
        for got, want in zip(other, outcomes[0], strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=10 * EXACT)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.none() | st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.sampled_from([{}, *FORMS]),
)
def test_chunks_through_a_cache_equal_the_full_pass(
    chunks: list[int], window: int | None, padded: bool, packed: bool, form: dict[str, Any]
) -> None:
    count = sum(chunks)
    mask = Mask(
        causal=True,
        window=window,
        valid_BS=padding([count, count - chunks[0] + 1], count, left=True) if padded else None,
        documents_BS=torch.tensor([[0, 0, 1, 1, 1] * 4, [0] * 20])[:, :count] if packed else None,
    )
    layer, x_BTD, scheme = made(Latent, **SIZES, **form), tokens(2, count), Rotated.part()(dim=16, heads=4, size=4)
    want = run(made(Latent, **SIZES, absorb="never", kernel="eager"), x_BTD, mask, scheme=scheme)
    torch.testing.assert_close(in_chunks(layer, x_BTD, chunks, mask, scheme=scheme), want, rtol=0, atol=EXACT)


def test_the_cache_holds_the_latent_and_the_shared_rotated_key_only() -> None:
    layer, cache = made(Latent, **SIZES), Cache()
    mask, _, _ = cache.extend(Mask(causal=True), torch.zeros(1, 5))
    layer(tokens(1, 5), mask=mask, cache=cache.layer((0, "self")))
    assert {name: tuple(tensor.shape) for name, tensor in cache.layer((0, "self")).tensors()} == {
        "latent": (1, 1, 5, 6 + 4)
    }
    assert cache.bytes() == 5 * (6 + 4) * 8


def test_published_sizes_follow_from_the_head_size() -> None:
    """Width 5120 with 128 heads: their heads of 128 are wider than width / heads, so the size is said."""
    with torch.device("meta"):
        layer = Latent.part(size=128, query_rank=1536)(dim=5120, heads=128)
    assert (layer.rank, layer.score_size, layer.value_size) == (512, 64, 128)
    projections = 5120 * 1536 + 1536 * 128 * 192 + 5120 * 576 + 512 * 128 * 256 + 128 * 128 * 5120
    assert sum(parameter.numel() for parameter in layer.parameters()) == projections + 1536 + 512


def test_the_form_that_takes_fewer_multiplications_is_chosen() -> None:
    """At DeepSeek's sizes latents win for up to 170 new tokens of a long past, and never without a past."""
    with torch.device("meta"):
        layer = Latent.part(size=128, rank=512, rotated=64, absorb="auto")(dim=5120, heads=128)
    assert [layer._absorbs(new, 10**6) for new in (1, 170, 171, 4096)] == [True, True, False, False]
    assert not any(layer._absorbs(tokens, tokens) for tokens in (1, 16, 4096))


@pytest.mark.parametrize("form", FORMS)
def test_keys_of_another_sequence_are_made_once(form: dict[str, Any]) -> None:
    layer, cache = made(Latent, **SIZES, **form), LayerCache()
    x_BTD, context_BSD, mask = tokens(count=2), tokens(count=5, salt=1), Mask().sized(2, 5)
    first = layer(x_BTD, context_BSD=context_BSD, mask=mask, cache=cache)
    again = layer(x_BTD, context_BSD=torch.full_like(context_BSD, torch.nan), mask=mask, cache=cache)
    assert torch.equal(first, again)
    torch.testing.assert_close(first, layer(x_BTD, context_BSD=context_BSD, mask=mask), rtol=0, atol=EXACT)


@pytest.mark.parametrize("absorb", ["never", "always"])
def test_both_forms_show_the_same_map(absorb: str) -> None:
    for mask in MASKS.values():
        want = weights_of(made(Latent, **SIZES, absorb="never"), mask)
        torch.testing.assert_close(weights_of(made(Latent, **SIZES, absorb=absorb), mask), want, rtol=0, atol=EXACT)


@pytest.mark.parametrize("form", FORMS)
def test_dropped_weights_are_made_up_for(form: dict[str, Any]) -> None:
    """The mean over many rows is the pass without dropout."""
    layer = made(Latent, training=True, dropout=0.3, **SIZES, **form)
    torch.manual_seed(0)
    outs = run(layer, tokens(1).expand(400, -1, -1), Mask(causal=True)).detach()
    error = (outs.mean(0) - run(layer.eval(), tokens(1), Mask(causal=True)).detach()).abs()
    assert float(outs.std(0).max()) > 0.05
    assert bool((error < 5 * outs.std(0) / 20 + 1e-12).all())


def test_what_a_latent_can_not_be() -> None:
    with pytest.raises(ValueError, match="width 15 is not divisible by 4 heads"):
        made(Latent, dim=15)
    with pytest.raises(ValueError, match="rotated must be at least 1, got 0"):
        made(Latent, rotated=0)
    with pytest.raises(ValueError, match="maps need the eager kernel, the recipe asks for sdpa"):
        run(made(Latent, kernel="sdpa"), tokens(1), Mask(causal=True), notes=Notes(maps=True))
