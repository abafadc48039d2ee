"""Attention along patterns: the published ones against others' code, blocks against eager, caches, cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mask_strategy import batch_of, patterned
from parity import small_recipe
from zoo.builder import build_model
from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.cache import Cache, LayerCache
from zoo.contracts.values.call import Call
from zoo.contracts.values.mask import CAUSAL, Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import NOWHERE, Place
from zoo.testing.schemes import Rotated
from zoo_builtin.attention.big_bird import BigBird
from zoo_builtin.attention.block_local import BlockLocal
from zoo_builtin.attention.dilated_window import DilatedWindow
from zoo_builtin.attention.global_local import GlobalLocal
from zoo_builtin.attention.grouped_query import GroupedQuery
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.attention.sliding_window import SlidingWindow
from zoo_builtin.attention.strided import Strided

SMALL: dict[str, tuple[type[HeadedAttention], dict[str, Any], int]] = {
    "dilated_window": (DilatedWindow, {"window": 3, "dilation": 2}, 0),
    "block_local": (BlockLocal, {"block": 3, "before": 1}, 0),
    "block_local alone": (BlockLocal, {"block": 4, "before": 0}, 0),
    "strided near": (Strided, {"stride": 3}, 0),
    "strided far": (Strided, {"stride": 3}, 1),
    "strided merged": (Strided, {"stride": 3, "factors": "merged"}, 0),
    "fixed near": (Strided, {"stride": 4, "summary": 2, "pattern": "fixed"}, 0),
    "fixed far": (Strided, {"stride": 4, "summary": 2, "pattern": "fixed"}, 1),
    "fixed merged": (Strided, {"stride": 4, "summary": 1, "pattern": "fixed", "factors": "merged"}, 0),
    "global_local": (GlobalLocal, {"window": 2, "tokens": 2}, 0),
    "big_bird": (BigBird, {"block": 2, "random": 1}, 0),
}
"""Each in a size that a few tokens feel: class, knobs, layer."""

NAMES = list(SMALL)


def made(name: str, *, dtype: torch.dtype = torch.float64, **knobs: Any) -> HeadedAttention:
    kind, own, layer = SMALL[name]
    torch.manual_seed(0)
    return kind.part(**own, **knobs)(dim=16, heads=4, layer=layer, layers=2, length=64).to(dtype)


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def outcome(layer: HeadedAttention, x_BTD: Tensor, mask: Mask) -> tuple[Tensor, ...]:
    """The output, and the gradients of the input and of all parameters."""
    x_BTD = x_BTD.clone().requires_grad_()
    out_BTD = layer(x_BTD, mask=mask)
    weights = torch.linspace(-1, 2, out_BTD.numel(), dtype=out_BTD.dtype).reshape(out_BTD.shape)
    return out_BTD, *torch.autograd.grad((out_BTD * weights).sum(), [x_BTD, *layer.parameters()])


def rule(name: str, tokens: int, causal: bool) -> Tensor:
    """(T, T) the equations of the docstrings, one pair at a time."""
    knobs: dict[str, Any] = SMALL[name][1]

    def far_or_near(near: bool, far: bool) -> bool:
        factors = knobs.get("factors", "layers")
        return (near or far) if factors == "merged" else far if SMALL[name][2] % 2 else near

    def sees(t: int, s: int) -> bool:
        if causal and s > t:
            return False
        match name.split()[0]:
            case "dilated_window":
                return any(abs(t - s) == step * knobs["dilation"] for step in range(knobs["window"]))
            case "block_local":
                return abs(t // knobs["block"] - s // knobs["block"]) <= knobs["before"]
            case "strided":
                return far_or_near(abs(t - s) <= knobs["stride"], (t - s) % knobs["stride"] == 0)
            case "fixed":
                near = t // knobs["stride"] == s // knobs["stride"]
                return far_or_near(near, s % knobs["stride"] >= knobs["stride"] - knobs["summary"])
            case "global_local":
                return abs(t - s) < knobs["window"] or min(t, s) < knobs["tokens"]
        raise AssertionError(name)

    return torch.tensor([[sees(t, s) for s in range(tokens)] for t in range(tokens)])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("global_local", "big_bird")])
def test_it_is_attention_with_a_mask_of_these_pairs(name: str, kernel: str, causal: bool) -> None:
    layer, x_BTD = made(name, kernel=kernel), noise(2, 17, 16)
    allowed = rule(name, 17, causal)
    q, k, v = (linear(x_BTD).unflatten(-1, (-1, 4)).transpose(1, 2) for linear in (layer.query, layer.key, layer.value))
    scores = (q @ k.transpose(-1, -2) / 2).masked_fill(~allowed, -torch.inf)
    out = (scores.softmax(-1).nan_to_num(0.0) @ v).transpose(1, 2).flatten(2)
    got = layer(x_BTD, mask=Mask(causal=causal).sized(17, 17))
    torch.testing.assert_close(got, layer.output(out), atol=1e-12, rtol=0)


@settings(max_examples=10, deadline=None)
@given(patterned().filter(lambda mask: mask.queries == mask.keys and mask.start == 0), st.sampled_from([1, 2, 4]))
@pytest.mark.parametrize("name", NAMES)
def test_fused_equals_eager_under_every_mask_forward_and_backward(name: str, mask: Mask, kv_heads: int) -> None:
    """Float64 sums over a few dozen keys in another order: 1e-11 is thousands of roundings."""
    x_BTD = noise(batch_of(mask), mask.keys, 16)
    fused, eager = (outcome(made(name, kernel=kernel, kv_heads=kv_heads), x_BTD, mask) for kernel in ("sdpa", "eager"))
    for got, want in zip(fused, eager, strict=True):
        torch.testing.assert_close(got, want, atol=1e-11, rtol=1e-11)


@settings(max_examples=40, deadline=None)
@given(patterned() | patterned().map(lambda mask: mask.changed(pattern=None)))
def test_every_attention_takes_documents_apart_and_caches_offsets(mask: Mask) -> None:
    """The call itself, queries anywhere among the keys, against softmax over the dense mask."""
    batch = batch_of(mask)
    q, k, v = (
        noise(batch, 4, mask.queries, 4),
        noise(batch, 2, mask.keys, 4, seed=2),
        noise(batch, 2, mask.keys, 3, seed=3),
    )
    eager, fused = (call(mask), call(mask))
    want = eager.emptied(eager.mix(eager.softmax(eager.scores(q, k)), v))
    torch.testing.assert_close(fused.emptied(fused.sdpa(q, k, v)), want, atol=1e-12, rtol=0)


def call(mask: Mask, dtype: torch.dtype = torch.float64) -> Call:
    empty = torch.zeros(0)
    own: dict[str, Any] = {"scale": 0.5, "x_BTD": empty, "cache": None, "notes": Notes(), "layer": 0, "dropout": 0.0}
    return Call(mask=mask, place=NOWHERE, kind="self", kernel="sdpa", dtype=dtype, **own)


@settings(max_examples=40, deadline=None)
@given(patterned() | patterned().map(lambda mask: mask.changed(pattern=None)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_stays_within_what_the_precision_explains(dtype: torch.dtype, mask: Mask) -> None:
    """Against float64 on the same rounded queries, keys and values, for the eager path and the fused one.

    With u = eps / 2 in the dtype and w in the dtype of the sums (float32), a score of H products is off by at most
    (H + 2) w sum|q k| scale, hence a weight by twice that relatively; weights are rounded once (u), their sums and the
    mixture are sums of S terms (2 S w), and the output is rounded once (u). All of it is relative to max|v|. A fused
    bfloat16 kernel also rounds the unnormalized weights, which is u once more.
    """
    batch = batch_of(mask)
    counts = (mask.queries, mask.keys, mask.keys)
    exact = [noise(batch, 2, count, 4, seed=seed).to(dtype).double() for seed, count in enumerate(counts)]
    q, k, v = exact
    law = call(mask)
    want = law.emptied(law.mix(law.softmax(law.scores(q, k)), v))
    wide, narrow = torch.finfo(torch.float32).eps / 2, torch.finfo(dtype).eps / 2
    of_scores = (4 + 2) * wide * float((q.abs() @ k.abs().transpose(-1, -2)).max()) * 0.5
    budget = (2 * of_scores + 2 * (mask.keys + 2) * wide + 3 * narrow) * float(v.abs().max())
    low = [x.to(dtype) for x in exact]
    eager, fused = call(mask, dtype), call(mask, dtype)
    got = {"eager": eager.mix(eager.softmax(eager.scores(*low[:2])), low[2]), "sdpa": fused.sdpa(*low)}
    for name, out in got.items():
        error = float((law.emptied(out).double() - want).abs().max())
        assert error <= budget, f"{name}: {error:.3g} of {budget:.3g}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@settings(max_examples=6, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(0, 4))
def test_chunks_through_the_cache_equal_the_full_pass(name: str, kernel: str, chunks: list[int], padded: int) -> None:
    layer, scheme = made(name, kernel=kernel), Rotated.part()(dim=16, heads=4, size=4)
    x_BTD, cache, outs = noise(2, sum(chunks), 16), Cache(), []
    padded = min(padded, chunks[0] - 1)  # the first row's prompt is that much shorter
    prompt = Mask(causal=True, valid_BS=torch.arange(chunks[0]) >= torch.tensor([[padded], [0]]))
    whole = Mask(causal=True, valid_BS=torch.arange(sum(chunks)) >= torch.tensor([[padded], [0]]))
    mask, at_BTA, keys_BSA = Cache().extend(whole, x_BTD)
    want = layer(x_BTD, mask=mask, place=Place(scheme, at_BTA, keys_BSA))
    with torch.no_grad():
        for index, piece_BTD in enumerate(x_BTD.split(chunks, 1)):
            mask, at_BTA, keys_BSA = cache.extend(prompt if index == 0 else CAUSAL, piece_BTD)
            place = Place(scheme, at_BTA, keys_BSA)
            outs.append(layer(piece_BTD, mask=mask, place=place, cache=cache.layer((0, "self"))))
    torch.testing.assert_close(torch.cat(outs, 1), want, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("name", "keys"),
    [("dilated_window", 5), ("block_local", 6), ("block_local alone", 4), ("strided near", 4), ("fixed near", 4)],
)
def test_the_cache_keeps_what_the_pattern_needs(name: str, keys: int) -> None:
    layer, cache = made(name), Cache()
    for _ in range(12):
        mask, _, _ = cache.extend(CAUSAL, torch.zeros(1, 1))
        with torch.no_grad():
            layer(noise(1, 1, 16), mask=mask, cache=cache.layer((0, "self")))
    assert cache.bytes() == keys * 2 * 16 * 8


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


def padded(tokens: int) -> Tensor:
    valid_BS = torch.ones(1, tokens, dtype=torch.bool)
    valid_BS[:, :3] = valid_BS[:, -5:] = False
    return valid_BS


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("given", ["nothing", "padding", "documents"])
@pytest.mark.parametrize("name", ["dilated_window", "block_local", "strided near", "global_local", "big_bird"])
def test_nothing_in_a_pass_has_as_many_elements_as_there_are_pairs(name: str, given: str, causal: bool) -> None:
    largest = {}
    for tokens in (512, 1024):
        layer, seen = made(name, dtype=torch.float32, kernel="sdpa"), Largest()
        valid_BS = padded(tokens) if given == "padding" else None
        documents_BS = torch.arange(tokens)[None] // 100 if given == "documents" else None
        with seen:
            mask = Mask(causal=causal, valid_BS=valid_BS, documents_BS=documents_BS).sized(tokens, tokens)
            outcome(layer, torch.randn(1, tokens, 16), mask)
        largest[tokens] = seen.elements
    assert largest[1024] < 1.3 * 2 * largest[512]
    assert largest[1024] < 1024 * 1024 / 4


@pytest.mark.parametrize("causal", [True, False])
def test_packed_documents_have_no_pairs_of_different_ones(causal: bool) -> None:
    layer, seen = MultiHead.part(kernel="sdpa")(dim=16, heads=4), Largest()
    documents_BS = torch.arange(2048)[None] // 64
    with seen:
        outcome(layer, torch.randn(1, 2048, 16), Mask(causal=causal, documents_BS=documents_BS).sized(2048, 2048))
    assert seen.elements <= 2048 * 64 * 4


def test_a_dilated_window_is_a_window_over_every_second_token() -> None:
    layer, x_BTD = made("dilated_window"), noise(2, 18, 16)
    plain = SlidingWindow.part(window=3)(dim=16, heads=4).double()
    plain.load_state_dict(layer.state_dict())
    got, mask = layer(x_BTD, mask=CAUSAL.sized(18, 18)), CAUSAL.sized(9, 9)
    for remainder in (0, 1):
        torch.testing.assert_close(got[:, remainder::2], plain(x_BTD[:, remainder::2], mask=mask), atol=1e-12, rtol=0)


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("causal", [True, False])
def test_blocks_are_those_of_reformer(kernel: str, causal: bool) -> None:
    """Local layers of the transformers library, which see one block before, and one after in an encoder."""
    reformer = pytest.importorskip("transformers.models.reformer.modeling_reformer")
    config = pytest.importorskip("transformers").ReformerConfig(
        hidden_size=16,
        num_attention_heads=4,
        attention_head_size=4,
        local_attn_chunk_length=4,
        local_num_chunks_before=1,
        local_num_chunks_after=0 if causal else 1,
        local_attention_probs_dropout_prob=0.0,
        is_decoder=causal,
    )
    theirs = reformer.LocalSelfAttention(config, layer_idx=0).double().eval()
    ours = BlockLocal.part(block=4, before=1, bias=False, kernel=kernel)(dim=16, heads=4).double()
    for name in ("query", "key", "value"):
        getattr(ours, name).weight = getattr(theirs, name).weight
    ours.output = torch.nn.Identity()  # type: ignore[assignment]  # theirs is another module
    valid_BS = torch.arange(20) < torch.tensor([[20], [13]])
    x_BTD = noise(2, 20, 16)
    want = theirs(x_BTD, attention_mask=valid_BS).hidden_states
    got = ours(x_BTD, mask=Mask(causal=causal, valid_BS=valid_BS).sized(20, 20))
    # Theirs wraps around: the first block of an encoder sees the last one, and the other way round.
    inner = slice(0, 20) if causal else slice(4, 16)
    torch.testing.assert_close(got[:, inner][valid_BS[:, inner]], want[:, inner][valid_BS[:, inner]], atol=1e-9, rtol=0)


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_global_tokens_are_those_of_longformer(kernel: str, tokens: int) -> None:
    longformer = pytest.importorskip("transformers.models.longformer.modeling_longformer")
    config = pytest.importorskip("transformers").LongformerConfig(
        hidden_size=16, num_attention_heads=4, attention_window=[8], attention_probs_dropout_prob=0.0
    )
    theirs = longformer.LongformerSelfAttention(config, layer_id=0).double().eval()
    ours = GlobalLocal.part(window=5, tokens=tokens, kernel=kernel)(dim=16, heads=4).double()
    ours.output = torch.nn.Identity()  # type: ignore[assignment]  # theirs is another module
    for name in ("query", "key", "value"):
        getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
        getattr(ours, f"global_{name}").load_state_dict(getattr(theirs, f"{name}_global").state_dict())
    valid_BS = torch.arange(32) < torch.tensor([[32], [21]])
    kinds_BS = torch.where(torch.arange(32) < tokens, 10_000.0, 0.0).double().expand(2, -1)
    kinds_BS = torch.where(valid_BS, kinds_BS, -10_000.0)
    x_BTD = noise(2, 32, 16)
    want = theirs(
        x_BTD,
        attention_mask=kinds_BS,
        is_index_masked=kinds_BS < 0,
        is_index_global_attn=kinds_BS > 0,
        is_global_attn=True,
    )[0]
    got = ours(x_BTD, mask=Mask(valid_BS=valid_BS).sized(32, 32))
    # They take the softmax in float32, whatever the dtype: roundings of 6e-8 of values near 1.
    torch.testing.assert_close(got[valid_BS], want[valid_BS], atol=5e-7, rtol=0)


def test_gpt_3_alternates_dense_and_banded_layers() -> None:
    """Brown et al. 2020, section 2.1: a list in the recipe, no component of its own."""
    attention = ["multi_head", {"name": "sliding_window", "window": 4}]
    sizes = {"layers": 4, "dim": 16, "heads": 4, "vocab_size": 11, "max_length": 32}
    model = build_model(small_recipe("gpt2", attention=attention, **sizes)).double().eval()
    assert [type(block.attention).__name__ for block in model.block_modules()] == ["MultiHead", "SlidingWindow"] * 2
    ids_BT = torch.randint(11, (1, 20), generator=torch.Generator().manual_seed(0))
    whole = model(ids_BT).hidden
    for layer, reach in enumerate([19, 3, 19, 3]):
        block = list(model.block_modules())[layer]
        notes = Notes(maps=True)
        block.attention(noise(1, 20, 16), mask=CAUSAL.sized(20, 20), notes=notes)
        seen = notes.maps(layer)[0].amax(0) > 0
        distance = torch.arange(20)[:, None] - torch.arange(20)
        assert torch.equal(seen, (distance >= 0) & (distance <= reach))
    cache, outs = Cache(), []
    with torch.no_grad():
        for piece in ids_BT.split([7, 1, 1, 5, 6], 1):
            outs.append(model(piece, cache=cache).hidden)
    torch.testing.assert_close(torch.cat(outs, 1), whole, atol=1e-10, rtol=0)
    kept = [cache.layer((layer, "self")).get("k").shape[2] for layer in range(4)]  # type: ignore[union-attr]
    assert kept[0] == kept[2] == 20 and kept[1] == kept[3] < 10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: DilatedWindow.part(dilation=0)(dim=16, heads=4),
            "window and dilation must be at least 1, got 128 and 0",
        ),
        (
            lambda: BlockLocal.part(block=0)(dim=16, heads=4),
            "block must be at least 1 and before at least 0, got 0 and 1",
        ),
        (lambda: Strided.part(stride=0)(dim=16, heads=4), "stride must be at least 1, got 0"),
        (
            lambda: Strided.part(pattern="fixed", stride=4, summary=5)(dim=16, heads=4),
            "summary must be between 1 and the stride of 4, got 5",
        ),
        (lambda: GlobalLocal.part(tokens=0)(dim=16, heads=4), "window and tokens must be at least 1, got 257 and 0"),
        (lambda: BigBird.part(random=-1)(dim=16, heads=4), "random must be at least 0, got -1"),
    ],
)
def test_what_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_another_sequence_is_refused() -> None:
    for name in NAMES:
        with pytest.raises(ValueError, match="was asked for cross"):
            made(name)(noise(1, 2, 16), context_BSD=noise(1, 3, 16), mask=Mask().sized(2, 3), cache=LayerCache())


def test_a_pattern_over_everything_is_grouped_query() -> None:
    whole = BlockLocal.part(block=9, kv_heads=2)(dim=16, heads=4).double()
    plain = GroupedQuery.part(kv_heads=2)(dim=16, heads=4).double()
    plain.load_state_dict(whole.state_dict())
    x_BTD, mask = noise(2, 9, 16), CAUSAL.sized(9, 9)
    torch.testing.assert_close(whole(x_BTD, mask=mask), plain(x_BTD, mask=mask), atol=1e-12, rtol=0)
