"""Attention by feature maps against sums over all pairs, in float64: masks, chunks, caches, groups, estimates."""

from __future__ import annotations

import dataclasses
import math
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
from zoo.contracts.attention import HeadedAttention
from zoo.contracts.values.cache import Cache, LayerCache
from zoo.contracts.values.call import repeat_heads
from zoo.contracts.values.mask import CAUSAL, EVERYTHING, Mask
from zoo.contracts.values.place import NOWHERE
from zoo.initialization import initialize
from zoo.nn.kernel_attention import kernel_attention
from zoo_builtin.attention.based import Based
from zoo_builtin.attention.cosformer import Cosformer
from zoo_builtin.attention.linear import Linear
from zoo_builtin.attention.performer import Performer

LENGTH = 24
VARIANTS = [Linear, Performer, Cosformer, Based]


def made(cls: type[HeadedAttention], dim: int = 16, heads: int = 4, seed: int = 0, **knobs: Any) -> Any:
    layer = cls(cls.Config(**knobs), dim=dim, heads=heads, length=LENGTH)
    initialize(layer, seed, std=0.4, branch_std=0.4)
    return layer.double()


def weights(layer: Any, q_BNTH: Tensor, k_BNSH: Tensor, start: int = 0) -> Tensor:
    """(B, N, T, S) unnormalized weights, straight from each paper's kernel."""
    products = q_BNTH @ k_BNSH.mT
    if isinstance(layer, Linear):
        return (F.elu(q_BNTH) + 1) @ (F.elu(k_BNSH) + 1).mT
    if isinstance(layer, Based):
        x = products * layer.scale
        return 1 + x + x**2 / 2
    if isinstance(layer, Cosformer):
        slots = torch.arange(start, start + q_BNTH.shape[2], dtype=torch.float64)
        distance = slots[:, None] - slots
        return (F.relu(q_BNTH) @ F.relu(k_BNSH).mT) * (math.pi / 2 * distance / LENGTH).cos()
    q, k = q_BNTH * layer.scale**0.5, k_BNSH * layer.scale**0.5
    features = [(x @ layer.directions.T - x.square().sum(-1, keepdim=True) / 2).exp() for x in (q, k)]
    return features[0] @ features[1].mT / len(layer.directions)


def by_pairs(layer: Any, x_BTD: Tensor, mask: Mask) -> Tensor:
    """The whole layer, with a T x T matrix of weights."""
    q, k = (layer._split(project(x_BTD), layer.score_size) for project in (layer.query, layer.key))
    v = layer._split(layer.value(x_BTD), layer.value_size)
    k, v = repeat_heads(k, layer.heads), repeat_heads(v, layer.heads)
    allowed = mask.dense(x_BTD.device)
    pairs = weights(layer, q, k, mask.start) * (1.0 if allowed is None else allowed)
    total = pairs.sum(-1, keepdim=True)
    out_BNTV = pairs @ v / torch.where(total == 0, 1, total)
    return layer.output(out_BNTV.transpose(1, 2).flatten(2))


def in_runs(mask: Mask) -> Mask:
    """Documents as a recurrence takes them: a number that comes again later is another document."""
    if mask.documents_BS is None:
        return mask
    numbers = (mask.documents_BS.diff(dim=1, prepend=mask.documents_BS[:, :1]) != 0).long().cumsum(1)
    return dataclasses.replace(mask, documents_BS=numbers, documents_BT=numbers, _memo={})


def self_masks() -> st.SearchStrategy[Mask]:
    return (
        masks()
        .filter(lambda mask: mask.queries == mask.keys and mask.start == mask.first and mask.window is None)
        .map(in_runs)
    )


@settings(max_examples=60)
@given(self_masks(), st.sampled_from(VARIANTS), st.sampled_from([1, 2, 4]))
def test_each_variant_is_its_kernel_under_every_mask(mask: Mask, cls: Any, kv_heads: int) -> None:
    layer = made(cls, kv_heads=kv_heads)
    x_BTD = torch.randn(batch_of(mask), mask.keys, 16, dtype=torch.float64).requires_grad_()
    outs = layer(x_BTD, mask=mask), by_pairs(layer, x_BTD, mask)
    torch.testing.assert_close(*outs, atol=1e-12, rtol=1e-11)
    direction = torch.linspace(-1, 2, outs[0].numel(), dtype=torch.float64).reshape(outs[0].shape)
    gradients = [torch.autograd.grad((out * direction).sum(), x_BTD)[0] for out in outs]
    torch.testing.assert_close(*gradients, atol=1e-10, rtol=1e-10)


def sums(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, *, chunk: int | None = None, cache: LayerCache | None = None
) -> Tensor:
    """``kernel_attention`` over features that are given."""
    layer = made(Linear, dim=v.shape[1] * v.shape[-1], heads=v.shape[1])
    call = layer.call(torch.zeros(1), mask=mask, place=NOWHERE, cache=cache, notes=None, dtype=v.dtype)
    return kernel_attention(q, k, v, call, chunk=chunk or 64)


def drawn(batch: int, tokens: int, groups: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(tokens)
    shapes = [(batch, 4, tokens, 5), (batch, groups, tokens, 5), (batch, groups, tokens, 3)]
    q, k, v = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return q.exp().requires_grad_(), k.exp().requires_grad_(), v.requires_grad_()


@settings(max_examples=60)
@given(self_masks(), st.sampled_from([1, 2, 3, 64]), st.sampled_from([1, 2, 4]))
def test_chunks_equal_pairs_forward_and_backward(mask: Mask, chunk: int, groups: int) -> None:
    q, k, v = drawn(batch_of(mask), mask.keys, groups)
    allowed = mask.dense(q.device)
    pairs = q @ repeat_heads(k, 4).mT * (1.0 if allowed is None else allowed)
    total = pairs.sum(-1, keepdim=True)
    want = pairs @ repeat_heads(v, 4) / torch.where(total == 0, 1, total)
    got = sums(q, k, v, mask, chunk=chunk)
    torch.testing.assert_close(got, want, atol=1e-12, rtol=1e-12)
    direction = torch.linspace(-1, 2, want.numel(), dtype=want.dtype).reshape(want.shape)
    for one, other in zip(
        torch.autograd.grad((got * direction).sum(), (q, k, v)),
        torch.autograd.grad((want * direction).sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-11, rtol=1e-11)


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.sampled_from(VARIANTS),
    st.integers(0, 4),
    st.booleans(),
)
def test_pieces_through_the_cache_equal_the_full_pass(pieces: list[int], cls: Any, padding: int, packed: bool) -> None:
    """The second row's prompt is padded on the left; perhaps it holds two documents, of which the last goes on."""
    layer = made(cls, kv_heads=2)
    tokens, prompt = sum(pieces), pieces[0]
    x_BTD = torch.randn(2, tokens, 16, dtype=torch.float64)
    valid_BS = torch.ones(2, tokens, dtype=torch.bool)
    valid_BS[1, : min(padding, prompt - 1)] = False
    documents_BS = torch.zeros(2, tokens, dtype=torch.int64)
    documents_BS[:, prompt // 2 :] = 7
    whole = Mask(causal=True, valid_BS=valid_BS, documents_BS=documents_BS if packed else None)
    want = layer(x_BTD, mask=whole.sized(tokens, tokens))
    cache, outs = Cache(), []
    for index, piece_BTD in enumerate(x_BTD.split(pieces, 1)):
        first = Mask(
            causal=True, valid_BS=valid_BS[:, :prompt], documents_BS=documents_BS[:, :prompt] if packed else None
        )
        mask, _, _ = cache.extend(CAUSAL if index else first, piece_BTD)
        with torch.no_grad():
            outs.append(layer(piece_BTD, mask=mask, cache=cache.layer((0, "self"))))
    torch.testing.assert_close(torch.cat(outs, 1), want, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("cls", VARIANTS)
def test_a_prefix_and_later_pieces(cls: Any) -> None:
    layer, cache = made(cls), Cache()
    x_BTD, prefix_B = torch.randn(2, 9, 16, dtype=torch.float64), torch.tensor([4, 2])
    want = by_pairs(layer, x_BTD, Mask(causal=True, prefix_B=prefix_B).sized(9, 9))
    outs = []
    for index, piece_BTD in enumerate(x_BTD.split([5, 1, 3], 1)):
        mask, _, _ = cache.extend(CAUSAL if index else Mask(causal=True, prefix_B=prefix_B), piece_BTD)
        outs.append(layer(piece_BTD, mask=mask, cache=cache.layer((0, "self"))))
    torch.testing.assert_close(torch.cat(outs, 1), want, atol=1e-12, rtol=1e-11)


@pytest.mark.parametrize(("cls", "numbers"), [(Linear, 4), (Performer, 6), (Cosformer, 8), (Based, 153)])
def test_a_cache_holds_one_state_whatever_the_length(cls: Any, numbers: int) -> None:
    """F V + F numbers a key/value head; a performer's are of each of the 4 heads, and F more of its peaks."""
    layer, cache, sizes = made(cls, kv_heads=2), Cache(), []
    for _ in range(3):
        mask, _, _ = cache.extend(CAUSAL, torch.zeros(1, 4))
        layer(torch.randn(1, 4, 16, dtype=torch.float64), mask=mask, cache=cache.layer((0, "self")))
        sizes.append(cache.bytes())
    numbers_of_all = 4 * (numbers * 5 + numbers) if cls is Performer else 2 * numbers * 5
    assert sizes == [numbers_of_all * 8] * 3


@pytest.mark.parametrize("cls", [Linear, Performer, Based])
def test_another_sequence_is_read_by_pairs_and_kept_as_a_state(cls: Any) -> None:
    layer, cache = made(cls, kv_heads=2), LayerCache()
    x_BTD, context_BSD = torch.randn(2, 3, 16, dtype=torch.float64), torch.randn(2, 6, 16, dtype=torch.float64)
    valid_BS = torch.tensor([[True] * 6, [True, True, False, False, False, False]])
    q = layer._split(layer.query(x_BTD), layer.score_size)
    k = repeat_heads(layer._split(layer.key(context_BSD), layer.score_size), 4)
    v = repeat_heads(layer._split(layer.value(context_BSD), layer.value_size), 4)
    pairs = weights(layer, q, k) * valid_BS[:, None, None]
    want = layer.output((pairs @ v / pairs.sum(-1, keepdim=True)).transpose(1, 2).flatten(2))
    mask = Mask(valid_BS=valid_BS).sized(3, 6)
    torch.testing.assert_close(layer(x_BTD, context_BSD=context_BSD, mask=mask), want, atol=1e-12, rtol=1e-11)
    for _ in range(2):
        got = layer(x_BTD, context_BSD=context_BSD, mask=mask, cache=cache)
        torch.testing.assert_close(got, want, atol=1e-12, rtol=1e-11)
    documents = {"documents_BS": torch.tensor([[0, 0, 1, 1, 2, 2]] * 2), "documents_BT": torch.tensor([[0, 1, 9]] * 2)}
    mask = Mask(**documents).sized(3, 6)
    pairs = weights(layer, q, k) * mask.dense(x_BTD.device)
    total = pairs.sum(-1, keepdim=True)
    want = layer.output((pairs @ v / torch.where(total == 0, 1, total)).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x_BTD, context_BSD=context_BSD, mask=mask), want, atol=1e-12, rtol=1e-11)


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


@pytest.mark.parametrize("mask", [CAUSAL, EVERYTHING], ids=["causal", "everything"])
@pytest.mark.parametrize("cls", VARIANTS)
def test_memory_grows_with_the_tokens(cls: Any, mask: Mask) -> None:
    largest = {}
    for tokens in (1024, 2048):
        knobs = {"size": 4} if cls is Based else {}
        layer = cls(cls.Config(**knobs), dim=16, heads=4, length=2048)
        initialize(layer, 0, std=0.4, branch_std=0.4)
        with Largest() as seen:
            layer(torch.randn(1, tokens, 16), mask=mask.sized(tokens, tokens)).sum().backward()
        largest[tokens] = seen.elements
    assert largest[2048] <= 2 * largest[1024]
    assert largest[2048] < 2048 * 2048 / 4


@pytest.mark.parametrize("causal", [True, False])
def test_float32_in_chunks_is_as_exact_as_over_pairs(causal: bool) -> None:
    """Positive weights and n terms: either order is off by a few roundings of the mean, over values near 1."""
    mask = Mask(causal=causal).sized(700, 700)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 700, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    q, k = q.exp(), k.exp()
    want = sums(q, k, v, mask)
    low = [x.float() for x in (q, k, v)]
    allowed = mask.dense(q.device)
    pairs = low[0] @ low[1].mT * (1.0 if allowed is None else allowed)
    usual = float((pairs @ low[2] / pairs.sum(-1, keepdim=True) - want).abs().max())
    error = float((sums(*low, mask) - want).abs().max())
    assert error <= 4 * usual + 8 * torch.finfo(torch.float32).eps


def estimates(layer: Performer, q_TH: Tensor, k_SH: Tensor, features: int) -> Tensor:
    """(draws, T, S) estimates of exp(q k), each with as many of the layer's directions."""
    phi_q, phi_k = (layer._exponents(x[None, None])[0, 0].exp().unflatten(1, (-1, features)) for x in (q_TH, k_SH))
    return torch.einsum("tdf,sdf->dts", phi_q, phi_k).detach() / features


def performer(features: int, size: int, seed: int = 0) -> Performer:
    layer = Performer.part(features=features, scale=1.0)(dim=size, heads=1).double()
    layer.initial("directions", layer.directions.data, torch.Generator().manual_seed(seed))
    return layer


def test_directions_of_a_performer_are_orthogonal_in_blocks_and_as_long_as_normal_vectors() -> None:
    directions = performer(10_002, 4).directions
    for block in directions[:40].split(4):
        gram = block @ block.T
        assert float((gram - torch.diag(gram.diagonal())).abs().max()) < 1e-12
    assert float((directions[-2] @ directions[-1]).abs()) < 1e-12
    square = directions.square().sum(1)
    assert float(square.mean()) == pytest.approx(4, abs=5 * (8 / 10_002) ** 0.5)  # chi squared: variance 2 H
    assert float(square.var()) == pytest.approx(8, rel=0.1)
    assert float(directions.mean(0).abs().max()) < 5 / 10_002**0.5


def test_a_performer_estimates_softmax_attention_without_bias() -> None:
    """The mean over 20,000 draws is exp(q k) within five standard errors in each entry, and so softmax attention."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = (0.4 * torch.randn(6, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    draws, exact = estimates(performer(160_000, 4), q, k, 8), (q @ k.T).exp()
    mean, error = draws.mean(0), draws.std(0) / len(draws) ** 0.5
    assert float(((mean - exact) / error).abs().max()) < 5
    assert float((error / exact).max()) < 0.02  # so that a bias of a tenth would be seen
    attention = F.scaled_dot_product_attention(q[None], k[None], v[None], scale=1.0)[0]
    torch.testing.assert_close(mean @ v / mean.sum(-1, keepdim=True), attention, atol=0.01, rtol=0)


def test_orthogonal_directions_have_a_smaller_error_than_independent_ones() -> None:
    """By 2 (m - 1) / (m (H + 2)) (exp(q k) - exp(-(|q|^2 + |k|^2) / 2))^2 or more (theorem 2 of the paper)."""
    x = torch.full((1, 8), (0.1 / 8) ** 0.5, dtype=torch.float64)
    layer, exact = performer(320_000, 8), math.exp(0.1)
    errors = [float((estimates(layer, x, x, 8) - exact).square().mean())]
    layer.directions.data.normal_(generator=torch.Generator().manual_seed(5))
    errors.append(float((estimates(layer, x, x, 8) - exact).square().mean()))
    gain = 2 * 7 / (8 * 10) * (exact - math.exp(-0.1)) ** 2
    assert errors[1] == pytest.approx(exact**2 * (math.exp(0.4) - 1) / 8, rel=0.05)
    assert errors[0] < errors[1] - 0.7 * gain


def test_a_performer_with_many_features_is_softmax_attention() -> None:
    layer = made(Performer, features=50_000)
    for project in (layer.query, layer.key):
        project.weight.data *= 0.4  # the error grows with exp |q + k|^2
    x_BTD = torch.randn(1, 6, 16, dtype=torch.float64)
    q, k, v = (layer._split(project(x_BTD), 4) for project in (layer.query, layer.key, layer.value))
    want = layer.output(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x_BTD, mask=CAUSAL.sized(6, 6)), want, atol=0.05, rtol=0)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("growth", [30.0, 1 / 30])
def test_exponentials_of_a_performer_neither_overflow_nor_vanish(growth: float, causal: bool) -> None:
    """Keys whose features lie more than e^100 apart, in float32: of the whole sequence at once, or token by token."""
    layer, cache, exact = made(Performer), Cache(), made(Performer)
    layer.key.weight.data *= 5
    layer = layer.float()
    exact.load_state_dict({name: tensor.double() for name, tensor in layer.state_dict().items()})
    x_BTD = torch.randn(2, 9, 16) * torch.tensor([1.0, growth, 1.0]).repeat_interleave(3)[:, None]
    exponents = exact._exponents(exact._split(exact.key(x_BTD.double()), 4))
    assert float((exponents.amax(-1).max() - exponents.amax(-1).min()).detach()) > 100
    outs = []
    for piece_BTD in x_BTD.split(1 if causal else 9, 1):
        mask, _, _ = cache.extend(Mask(causal=causal), piece_BTD)
        outs.append(layer(piece_BTD, mask=mask, cache=cache.layer((0, "self"))))
    want = by_pairs_in_logs(exact, x_BTD.double(), causal)
    torch.testing.assert_close(torch.cat(outs, 1).double(), want, atol=1e-3, rtol=1e-3)


def by_pairs_in_logs(layer: Any, x_BTD: Tensor, causal: bool) -> Tensor:
    """A performer with sums of exponentials by logarithms, one pair at a time."""
    q, k, v = (layer._split(project(x_BTD), 4) for project in (layer.query, layer.key, layer.value))
    of_q, of_k = layer._exponents(q), layer._exponents(k)
    logs = torch.logsumexp(of_q[:, :, :, None] + of_k[:, :, None], -1)
    if causal:
        logs = logs.masked_fill(torch.ones(logs.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return layer.output((logs.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_what_they_can_not_be() -> None:
    for cls in (Linear, Cosformer):
        with pytest.raises(ValueError, match=r"has no scores to scale, leave scale null; got 0\.5"):
            made(cls, scale=0.5)
    with pytest.raises(ValueError, match="it must be > 0: -1"):
        made(Performer, scale=-1.0)
    with pytest.raises(ValueError, match="features must be at least 1, got 0"):
        made(Performer, features=0)
    with pytest.raises(ValueError, match="cosformer needs to know the most tokens there can be"):
        Cosformer.part()(dim=16, heads=4)
    with pytest.raises(ValueError, match="25 tokens, cosformer was made for 24"):
        made(Cosformer)(torch.zeros(1, 25, 16).double(), mask=CAUSAL.sized(25, 25))
    with pytest.raises(ValueError, match="width 15 is not divisible by 4 heads"):
        made(Based, dim=15)
