"""The recurrence of a matrix: the equation, chunks against single steps, padding, documents, caches, extreme decays."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from zoo.contracts.values.cache import LayerCache
from zoo.contracts.values.call import Tokens
from zoo.nn.recurrence import Steps, chunked, recur, steps_of, stepwise
from zoo.nn.short_convolution import ShortConvolution, earlier, with_past

DECAYS, ERASURES = ("none", "head", "element"), ("none", "delta", "any")


class Inputs(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor
    read: Tensor | None
    erase: Tensor | None


def inputs(
    tokens: int, decay: str, erasure: str, *, batch: int = 2, heads: int = 2, size: int = 3, dtype: Any = torch.float64
) -> Inputs:
    """Random inputs of one of the nine kinds, with keys short enough for the erasure to stay bounded."""
    torch.manual_seed(tokens)

    def noise(width: int) -> Tensor:
        return torch.randn(batch, heads, tokens, width, dtype=torch.float64).to(dtype)

    q, k, v, read, erase = noise(size), noise(size), noise(size + 1), noise(size), noise(size)
    widths = {"none": 1, "head": 1, "element": size}
    log_decay = -(noise(widths[decay]).exp()) * (decay != "none")
    unit = F.normalize(read, dim=-1)
    if erasure == "none":
        return Inputs(q, k, v, log_decay, None, None)
    if erasure == "delta":
        return Inputs(q, unit * 0.7, v, log_decay, unit, None)
    return Inputs(q, k, v, log_decay, unit, unit * erase.sigmoid())


def by_the_equation(x: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix for each token, one row and head at a time."""
    outs, final = torch.zeros_like(x.v), state.clone()
    for b, n in itertools.product(range(x.v.shape[0]), range(x.v.shape[1])):
        memory = state[b, n]
        for t in range(x.v.shape[2]):
            turn = torch.diag(x.decay[b, n, t].exp().expand(memory.shape[0]))
            if x.read is not None:
                turn = turn - torch.outer((x.k if x.erase is None else x.erase)[b, n, t], x.read[b, n, t])
            memory = turn @ memory + torch.outer(x.k[b, n, t], x.v[b, n, t])
            outs[b, n, t] = memory.T @ x.q[b, n, t]
        final[b, n] = memory
    return outs, final


def close(got: Any, want: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(got, want, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("erasure", ERASURES)
def test_steps_are_the_equation(decay: str, erasure: str) -> None:
    x, state = inputs(11, decay, erasure), torch.randn(2, 2, 3, 4, dtype=torch.float64)
    close(stepwise(*x, state), by_the_equation(x, state), 1e-12)


@settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.sampled_from([1, 2, 4, 8, 16, 32]),
    st.sampled_from(DECAYS),
    st.sampled_from(ERASURES),
    st.lists(st.integers(0, 39), max_size=4),
)
def test_chunks_equal_steps_forward_and_backward(
    tokens: int, size: int, decay: str, erasure: str, forgotten: list[int]
) -> None:
    x = inputs(tokens, decay, erasure)
    for t in forgotten:
        x.decay[:, :, t : t + 1] = -torch.inf
    state = torch.randn(2, 2, 3, 4, dtype=torch.float64)
    leaves = [tensor for tensor in (*x, state) if tensor is not None]
    outcomes = []
    for way, extra in ((stepwise, ()), (chunked, (size,))):
        for leaf in leaves:
            leaf.requires_grad_()
        out, final = way(*x, state, *extra)  # type: ignore[operator]
        slopes = [torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape) for y in (out, final)]
        total = (out * slopes[0]).sum() + (final * slopes[1]).sum()
        outcomes.append([out, final, *torch.autograd.grad(total, leaves, materialize_grads=True)])
    close(outcomes[1], outcomes[0])


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("erasure", ERASURES)
def test_default_chunks_over_several_of_them(decay: str, erasure: str) -> None:
    """Two whole chunks of 64 and a part: all levels of the pairs by halves."""
    x = inputs(150, decay, erasure, batch=1, size=8)
    state = torch.randn(1, 2, 8, 9, dtype=torch.float64)
    cache = LayerCache()
    cache.put("state", state)
    got = recur(x.q, x.k, x.v, decay_BNTX=x.decay, read_BNTH=x.read, erase_BNTH=x.erase, cache=cache)
    close((got, cache.get("state")), stepwise(*x, state))


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.sampled_from(DECAYS),
    st.sampled_from(ERASURES),
    st.booleans(),
    st.integers(0, 6),
)
def test_calls_through_a_cache_equal_one(
    pieces: list[int], decay: str, erasure: str, documents: bool, pad: int
) -> None:
    """Left padding in row 0, documents that change anywhere, between two calls as well."""
    tokens = sum(pieces)
    x = inputs(tokens, decay, erasure)
    documents_BT = torch.tensor([[7] * 5 + [3] * 4 + [8] * 60, [1] * 2 + [2] * 67])[:, :tokens] if documents else None
    valid_BT = torch.ones(2, tokens, dtype=torch.bool)
    valid_BT[0, : min(pad, tokens)] = False

    def run(cache: LayerCache, begin: int, end: int) -> Tensor:
        here = slice(begin, end)
        before_B1 = documents_BT[:, begin - 1 : begin] if documents_BT is not None and begin else None
        steps = steps_of(Tokens(valid_BT[:, here], None if documents_BT is None else documents_BT[:, here], before_B1))
        q, k, v, decays, read, erase = (None if y is None else y[:, :, here] for y in x)
        assert q is not None and k is not None and v is not None
        return recur(q, k, v, decay_BNTX=decays, read_BNTH=read, erase_BNTH=erase, steps=steps, cache=cache, chunk=8)

    whole, cache, ends = LayerCache(), LayerCache(), torch.tensor([0, *pieces]).cumsum(0).tolist()
    want = run(whole, 0, tokens)
    got = torch.cat([run(cache, begin, end) for begin, end in itertools.pairwise(ends)], 2)
    keep = valid_BT[:, None, :, None]
    close((got * keep, cache.get("state")), (want * keep, whole.get("state")))


def test_padding_neither_writes_nor_decays() -> None:
    x = inputs(9, "element", "any")
    valid_BT = torch.ones(2, 9, dtype=torch.bool)
    valid_BT[0, [0, 1, 4, 8]] = False
    kept = [y[:1, :, valid_BT[0]] for y in x if y is not None]
    names = ("decay_BNTX", "read_BNTH", "erase_BNTH")
    junk = [torch.where(valid_BT[:, None, :, None], y, 1e6) for y in x if y is not None]
    got = recur(*junk[:3], **dict(zip(names, junk[3:], strict=True)), steps=Steps(valid_BT))
    close(got[:1, :, valid_BT[0]], recur(*kept[:3], **dict(zip(names, kept[3:], strict=True))))


def test_one_head_of_keys_serves_all_heads_of_values() -> None:
    x = inputs(21, "head", "none")
    q, k = x.q[:, :1], x.k[:, :1]
    want = recur(q.expand(-1, 2, -1, -1), k.expand(-1, 2, -1, -1), x.v, decay_BNTX=x.decay)
    close(recur(q, k, x.v, decay_BNTX=x.decay), want)


def test_documents_are_numbered_by_where_they_change() -> None:
    documents_BT = torch.tensor([[5, 5, 9, 5], [7, 7, 7, 7]])
    assert steps_of(Tokens(None, None, None)) == Steps(None, None)
    assert steps_of(Tokens(None, documents_BT, None)).segment_BT.tolist() == [[0, 0, 1, 2], [0, 0, 0, 0]]
    before_B1 = torch.tensor([[5], [6]])
    assert steps_of(Tokens(None, documents_BT, before_B1)).segment_BT.tolist() == [[0, 0, 1, 2], [1, 1, 1, 1]]


@pytest.mark.parametrize("decay", ["head", "element"])
@pytest.mark.parametrize("erasure", ERASURES)
@pytest.mark.parametrize("strong", [1e3, 1e30, math.inf])
def test_strong_decays_make_no_infinity_and_leave_weak_ones_exact(decay: str, erasure: str, strong: float) -> None:
    """Every fifth token forgets all; the weights between are as exact as without, and every gradient is finite."""
    for dtype in (torch.float64, torch.float32):
        x = inputs(70, decay, erasure, dtype=dtype)
        log_decay = torch.where(torch.arange(70)[:, None] % 5 == 0, torch.tensor(-strong, dtype=dtype), x.decay)
        x = x._replace(decay=log_decay)
        leaves = [tensor.requires_grad_() for tensor in x if tensor is not None]
        state = torch.zeros(2, 2, 3, 4, dtype=dtype)
        out, _ = chunked(*x, state, 32)
        gradients = torch.autograd.grad(out.sum(), leaves)
        assert all(bool(torch.isfinite(tensor).all()) for tensor in (out, *gradients))
        close(out, stepwise(*x, state)[0], 1e-12 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("erasure", ERASURES)
def test_float32_errs_by_roundings(decay: str, erasure: str) -> None:
    """Sums of up to 64 products and of as many exponents, each of which is below 64 x 3 in size.

    An exponent's rounding of 2^-24 x 200 = 1.2e-5 is what it adds to a weight, relatively; sums of random signs
    over it stay there. Single steps, which round 300 times in a row, are allowed the same.
    """
    x = inputs(300, decay, erasure, size=8)
    state = torch.zeros(2, 2, 8, 9, dtype=torch.float64)
    want, _ = stepwise(*x, state)
    low = [None if y is None else y.float() for y in x]
    for got, _ in (chunked(*low, state.float(), 64), stepwise(*low, state.float())):  # type: ignore[arg-type]
        assert got.dtype == torch.float32
        error = float((got.double() - want).square().mean().sqrt() / want.square().mean().sqrt())
        assert error < 1.2e-5


def test_low_precision_is_computed_in_float32_and_its_state_kept_so() -> None:
    x, cache = inputs(20, "element", "any", dtype=torch.bfloat16), LayerCache()
    low = recur(x.q, x.k, x.v, decay_BNTX=x.decay, read_BNTH=x.read, erase_BNTH=x.erase, cache=cache)
    exact = stepwise(*(None if y is None else y.double() for y in x), torch.zeros(2, 2, 3, 4).double())[0]
    assert low.dtype == cache.get("state").dtype == torch.float32
    close(low.double(), exact, 1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        close(recur(x.q, x.k, x.v, decay_BNTX=x.decay, read_BNTH=x.read, erase_BNTH=x.erase), low, 0.0)


class Elements(TorchDispatchMode):
    """The number of elements of all that operations give, and of the largest of them."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.total, self.largest = self.total + sum(sizes), max([self.largest, *sizes])
        return result


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("erasure", ERASURES)
def test_work_and_memory_are_linear_in_the_tokens(decay: str, erasure: str) -> None:
    """Forward and backward, documents included: twice the tokens, twice of everything."""
    seen = {}
    for tokens in (1024, 2048):
        x = inputs(tokens, decay, erasure, batch=1, size=16, dtype=torch.float32)
        leaves = [tensor.requires_grad_() for tensor in x if tensor is not None]
        steps = Steps(None, torch.arange(tokens)[None] // 100)
        with Elements() as seen[tokens]:
            out = recur(
                x.q, x.k, x.v, decay_BNTX=x.decay, read_BNTH=x.read, erase_BNTH=x.erase, steps=steps, cache=LayerCache()
            )
            torch.autograd.grad(out.sum(), leaves, materialize_grads=True)
    assert seen[2048].total < 2.05 * seen[1024].total
    assert seen[2048].largest <= 2 * seen[1024].largest


def convolved(weight: Tensor, bias: Tensor | None, x_BTC: Tensor, documents: list[list[int]]) -> Tensor:
    """Tap by tap."""
    out = torch.zeros_like(x_BTC) if bias is None else bias.expand_as(x_BTC).clone()
    for b in range(x_BTC.shape[0]):
        for t in range(x_BTC.shape[1]):
            for back in range(min(t + 1, weight.shape[1])):
                if documents[b][t - back] == documents[b][t]:
                    out[b, t] += weight[:, -1 - back] * x_BTC[b, t - back]
    return out


def made(channels: int, width: int, bias: bool) -> ShortConvolution:
    torch.manual_seed(2)
    layer = ShortConvolution(channels, width, bias=bias).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.integers(2, 5),
    st.booleans(),
    st.booleans(),
    st.integers(0, 4),
)
def test_short_convolutions_heed_padding_documents_and_the_cache(
    pieces: list[int], width: int, bias: bool, documents: bool, pad: int
) -> None:
    tokens = sum(pieces)
    layer, x_BTC = made(3, width, bias), torch.randn(2, tokens, 3, dtype=torch.float64)
    rows = [([4] * 3 + [6] * 2 + [5] * 30)[:tokens], ([1] * 4 + [2] * 30)[:tokens]] if documents else [[0] * tokens] * 2
    documents_BT = torch.tensor(rows) if documents else None
    valid_BT = torch.ones(2, tokens, dtype=torch.bool)
    valid_BT[0, : min(pad, tokens)] = False
    want = convolved(layer.weight, layer.bias, x_BTC * valid_BT[..., None], rows)
    cache, outs, begin = LayerCache(), [], 0
    for piece in pieces:
        here = slice(begin, begin + piece)
        before_B1 = documents_BT[:, begin - 1 : begin] if documents_BT is not None and begin else None
        steps = steps_of(Tokens(valid_BT[:, here], None if documents_BT is None else documents_BT[:, here], before_B1))
        outs.append(layer(x_BTC[:, here], steps, cache, "inputs"))
        begin += piece
    close(torch.cat(outs, 1), want, 1e-12)
    assert cache.get("inputs").shape == (2, width - 1, 3)
    close(layer(x_BTC, steps_of(Tokens(valid_BT, documents_BT, None)), None, "inputs"), want, 1e-12)


def test_short_convolutions_are_those_of_torch() -> None:
    layer, x_BTC = made(3, 4, True), torch.randn(2, 9, 3, dtype=torch.float64)
    want = F.conv1d(x_BTC.transpose(1, 2), layer.weight[:, None], layer.bias, padding=3, groups=3)[..., :9]
    close(layer(x_BTC, Steps(), None, "inputs"), want.transpose(1, 2), 1e-12)
    with pytest.raises(ValueError, match="at least 2 taps, got 1"):
        ShortConvolution(3, 1)


def test_what_stands_before_a_token() -> None:
    x_BTC = torch.arange(1.0, 5.0)[None, :, None]
    steps = Steps(torch.tensor([[False, True, True, True]]), torch.tensor([[0, 0, 0, 1]]))
    whole = with_past(x_BTC, 2, steps, None, "x")
    assert whole.flatten().tolist() == [0, 0, 0, 2, 3, 4]
    assert earlier(whole, 1, 2, steps).flatten().tolist() == [0, 0, 2, 0]
    assert earlier(whole, 0, 2, steps).flatten().tolist() == [0, 2, 3, 4]
    assert math.isclose(float(earlier(whole, 2, 2, Steps()).sum()), 2)
