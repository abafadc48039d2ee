"""Mixers that carry a state: each by a plain loop over its paper's equations, its cache, and its rounding.

Dimension legend: B batch, T tokens, D width, N heads, H key size, V value size.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import CAUSAL, Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import Place
from zoo.initialization import initialize
from zoo.testing.module_case import scatter
from zoo.testing.numbers import within_rounding
from zoo.testing.schemes import Rotated
from zoo_builtin.attention.delta_net import DeltaNet
from zoo_builtin.attention.gated_delta_net import GatedDeltaNet
from zoo_builtin.attention.gated_linear import GatedLinear
from zoo_builtin.attention.hyena import Hyena
from zoo_builtin.attention.mamba2 import Mamba2
from zoo_builtin.attention.retention import Retention
from zoo_builtin.attention.rwkv7 import RWKV7

DIM, HEADS = 16, 2
KNOBS: dict[type[Attention], dict[str, Any]] = {
    Retention: {},
    GatedLinear: {"rank": 4},
    DeltaNet: {},
    GatedDeltaNet: {"key_heads": 1},
    Mamba2: {"state_size": 6},
    RWKV7: {"decay_rank": 4, "rate_rank": 4, "value_rank": 4, "gate_rank": 4},
    Hyena: {"hidden": 8, "bands": 3, "length": 32},
}
MIXERS = pytest.mark.parametrize("mixer", KNOBS, ids=lambda mixer: mixer.__name__)


def made(mixer: type[Attention], *, dtype: Any = torch.float64, heads: int = HEADS, **knobs: Any) -> Any:
    layer = knobs.pop("layer", 0)
    config = mixer.Config(**{**KNOBS[mixer], **knobs})  # type: ignore[attr-defined]
    attention = mixer(config, dim=DIM, heads=heads, layer=layer, layers=2)
    scatter(attention, 3)
    return attention.to(dtype)


def noise(batch: int, tokens: int, width: int = DIM) -> Tensor:
    return torch.randn(batch, tokens, width, dtype=torch.float64, generator=torch.Generator().manual_seed(tokens))


def run(attention: Attention, x_BTD: Tensor, mask: Mask = CAUSAL, cache: Cache | None = None) -> Tensor:
    mask, _, _ = (Cache() if cache is None else cache).extend(mask, x_BTD[..., 0])
    return attention(x_BTD, mask=mask, cache=None if cache is None else cache.layer((0, "self")))


def heads_of(x_TX: Tensor, heads: int = HEADS) -> Tensor:
    """(N, T, size) of (T, N size)."""
    return x_TX.unflatten(-1, (heads, -1)).transpose(0, 1)


def close(got: Tensor, want: Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(got, want, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("tokens", [3, 40])
def test_retention_is_equation_5_of_its_paper(tokens: int) -> None:
    """The parallel form, with the divisions of section 2.3, which cancel in a group norm without epsilon."""
    attention, x_BTD = made(Retention, eps=1e-40), noise(1, tokens)
    at_BTA = torch.arange(tokens)[None, :, None]
    place = Place(Rotated.part()(dim=DIM, heads=HEADS, size=DIM // HEADS), at_BTA, at_BTA)
    q, k = (place.rotate(heads_of(layer(x_BTD)[0])[None])[0] for layer in (attention.query, attention.key))
    v = heads_of(attention.value(x_BTD)[0])
    heads = []
    for n in range(HEADS):
        gamma = 1 - 2.0 ** (-5 - n)
        distance = (torch.arange(tokens)[:, None] - torch.arange(tokens)).double()
        fading = torch.where(distance >= 0, gamma**distance, 0.0)
        fading = fading / fading.sum(1, keepdim=True).sqrt()
        weights = q[n] @ k[n].T / math.sqrt(DIM // HEADS) * fading
        heads.append(weights @ v[n] / weights.sum(1, keepdim=True).abs().clamp(min=1))
    norm = attention.norm
    y = F.group_norm(torch.cat(heads, -1), HEADS, norm.weight, norm.bias, eps=1e-40)
    want = attention.output(F.silu(attention.gate(x_BTD[0])) * y)
    close(attention(x_BTD, mask=CAUSAL.sized(tokens, tokens), place=place)[0], want, 1e-9)


@pytest.mark.parametrize("tokens", [3, 40])
def test_gated_linear_attention_is_its_recurrence(tokens: int) -> None:
    attention, x_BTD = made(GatedLinear), noise(1, tokens)
    x = x_BTD[0]
    q, k, v = (heads_of(layer(x)) for layer in (attention.query, attention.key, attention.value))
    assert q.shape[-1] == 4 and v.shape[-1] == 8
    alpha = heads_of(attention.decay(x).sigmoid() ** (1 / 16))
    out = torch.zeros_like(v)
    for n in range(HEADS):
        state = torch.zeros(4, 8, dtype=torch.float64)
        for t in range(tokens):
            state = alpha[n, t][:, None] * state + torch.outer(k[n, t], v[n, t])
            out[n, t] = state.T @ q[n, t] * 4**-0.5
    out = F.layer_norm(out, (8,), attention.norm.weight, attention.norm.bias)
    want = attention.output(F.silu(attention.gate(x)) * out.transpose(0, 1).flatten(1))
    close(run(attention, x_BTD)[0], want)


def short(layer: nn.Module, x_TC: Tensor) -> Tensor:
    """A short convolution tap by tap, and SiLU."""
    width = layer.weight.shape[1]
    padded = F.pad(x_TC, (0, 0, width - 1, 0))
    return F.silu(sum(layer.weight[:, tap] * padded[tap : tap + len(x_TC)] for tap in range(width)))


@pytest.mark.parametrize("tokens", [3, 40])
def test_the_delta_net_is_its_recurrence(tokens: int) -> None:
    attention, x_BTD = made(DeltaNet), noise(1, tokens)
    x = x_BTD[0]
    q, k = (
        F.normalize(heads_of(short(convolution, layer(x))), dim=-1)
        for layer, convolution in (
            (attention.query, attention.query_convolution),
            (attention.key, attention.key_convolution),
        )
    )
    v = heads_of(short(attention.value_convolution, attention.value(x)))
    beta = heads_of(attention.beta(x).sigmoid())
    out = torch.zeros_like(v)
    for n in range(HEADS):
        state = torch.zeros(8, 8, dtype=torch.float64)
        for t in range(tokens):
            old = state.T @ k[n, t]
            new = beta[n, t] * v[n, t] + (1 - beta[n, t]) * old
            state = state - torch.outer(k[n, t], old) + torch.outer(k[n, t], new)
            out[n, t] = state.T @ q[n, t] * 8**-0.5
    want = attention.output(F.rms_norm(out, (8,), attention.norm.weight, 1e-5).transpose(0, 1).flatten(1))
    close(run(attention, x_BTD)[0], want, 1e-5)  # 1e-6 is added to the squared lengths


def test_a_key_that_is_written_twice_has_the_second_value() -> None:
    """With beta 1 the delta rule replaces: reading a key gives its last value, whatever was written before."""
    attention = made(DeltaNet)
    with torch.no_grad():
        attention.beta.weight.fill_(0.0)
        attention.beta.weight[:, 0] = 100.0
        for convolution in (attention.query_convolution, attention.key_convolution, attention.value_convolution):
            convolution.weight.fill_(0.0)[:, -1] = 1.0
        attention.query.weight.copy_(attention.key.weight)
        attention.key.weight[:, 1:8], attention.query.weight[:, 1:8] = 0.0, 0.0
    x_BTD = noise(1, 6)
    x_BTD[..., 0] = 1.0
    x_BTD[..., 8:] = x_BTD[:, :1, 8:]  # the same key for all, values of their own
    with torch.no_grad():
        value = heads_of(F.silu(attention.value(x_BTD)[0]))
        got = run(attention, x_BTD)[0]
        want = attention.output(F.rms_norm(value, (8,), attention.norm.weight, 8e-5).transpose(0, 1).flatten(1))
    close(got, want, 1e-4)


def rwkv7_by_the_paper(attention: Any, x: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
    """Section 4 of arXiv:2503.14456 token by token, its state as there: rows are values."""
    tokens, size = len(x), DIM // HEADS
    mu = attention.mix.unflatten(0, (6, DIM))
    previous, states, outs, values = torch.zeros(DIM, dtype=torch.float64), [], [], []
    states = [torch.zeros(size, size, dtype=torch.float64) for _ in range(HEADS)]
    lora = {
        name: [layer.weight for layer in getattr(attention, name) if hasattr(layer, "weight")]
        for name in ("decay", "rate", "gate", *(["share"] if attention.layer else []))
    }
    for t in range(tokens):
        r_in, w_in, k_in, v_in, a_in, g_in = (x[t] + mu[i] * (previous - x[t]) for i in range(6))
        previous = x[t]
        down, up = lora["decay"]
        w = torch.exp(-math.exp(-0.5) * torch.sigmoid(attention.decay_bias + up @ torch.tanh(down @ w_in)))
        down, up = lora["rate"]
        a = torch.sigmoid(attention.rate_bias + up @ (down @ a_in))
        down, up = lora["gate"]
        g = up @ torch.sigmoid(down @ g_in)
        k, v, r = attention.key.weight @ k_in, attention.value.weight @ v_in, attention.receptance.weight @ r_in
        values.append(v)
        if attention.layer:
            down, up = lora["share"]
            v = torch.lerp(
                v, v if first is None else first[t], torch.sigmoid(attention.share_bias + up @ (down @ v_in))
            )
        kappa, key = k * attention.removal, k * (1 + (a - 1) * attention.replacement)
        parts = []
        for n in range(HEADS):
            own = slice(n * size, (n + 1) * size)
            unit = kappa[own] / kappa[own].norm()
            turn = torch.diag(w[own]) - torch.outer(unit, a[own] * unit)
            states[n] = states[n] @ turn + torch.outer(v[own], key[own])
            read = states[n] @ r[own]
            read = (read - read.mean()) / torch.sqrt(read.var(correction=0) + 1e-5 * size)
            read = read * attention.norm.weight[own] + attention.norm.bias[own]
            parts.append(read + (r[own] * attention.bonus[own] * key[own]).sum() * v[own])
        outs.append(attention.output(g * torch.cat(parts)))
    return torch.stack(outs), torch.stack(values)


@pytest.mark.parametrize("tokens", [3, 40])
def test_rwkv7_is_its_papers_equations_in_two_layers(tokens: int) -> None:
    layers, x_BTD, notes = [made(RWKV7, layer=layer) for layer in (0, 1)], noise(1, tokens), Notes()
    got = [layer(x_BTD, mask=CAUSAL.sized(tokens, tokens), notes=notes)[0] for layer in layers]
    want, first = rwkv7_by_the_paper(layers[0], x_BTD[0], None)
    close(got[0], want)
    close(got[1], rwkv7_by_the_paper(layers[1], x_BTD[0], first)[0])


def test_rwkv7_above_another_mixer_has_its_own_values() -> None:
    layer, x_BTD = made(RWKV7, layer=1), noise(1, 6)
    close(run(layer, x_BTD)[0], rwkv7_by_the_paper(layer, x_BTD[0], None)[0])


def test_rwkv7_begins_as_published() -> None:
    """Decays that its code begins with: from exp(-e^-0.5 sigmoid(-6.5)) at the first channel to sigmoid(-1.5)."""
    layer = RWKV7(RWKV7.Config(), dim=64, heads=1, layer=1, layers=2)
    initialize(layer, 0, std=0.02, branch_std=0.02)
    assert layer.decay_bias[[0, -1]].tolist() == pytest.approx([-6.5, -1.5])
    assert layer.decay_bias[21].item() == pytest.approx(-6.5 + 5 * (21 / 63) ** 1.85)
    mix = layer.mix.unflatten(0, (6, 64))
    assert mix[:, 0].tolist() == [1.0] * 6
    assert mix[0, 32].item() == pytest.approx(1 - 0.5**0.1)
    assert mix[1, 32].item() == pytest.approx(1 - 0.5**0.45)
    assert layer.norm.eps == pytest.approx(64e-5)
    ranks = {name: getattr(layer, name)[0].out_features for name in ("decay", "rate", "share", "gate")}
    assert ranks == {"decay": 32, "rate": 32, "share": 32, "gate": 32}
    wide = RWKV7(RWKV7.Config(), dim=768, heads=12, layer=1, layers=2)
    ranks = {name: getattr(wide, name)[0].out_features for name in ("decay", "rate", "share", "gate")}
    assert ranks == {"decay": 64, "rate": 64, "share": 32, "gate": 128}


@pytest.mark.parametrize("order", [1, 2, 3])
def test_hyena_is_the_sum_over_all_earlier_tokens(order: int) -> None:
    tokens = 13
    attention, x_BTD = made(Hyena, order=order), noise(1, tokens)
    mixed = F.pad(attention.inputs(x_BTD)[0], (0, 0, 2, 0))
    weight = attention.convolution.weight
    mixed = attention.convolution.bias + sum(weight[:, tap] * mixed[tap : tap + tokens] for tap in range(3))
    z, *gates = mixed.chunk(order + 1, -1)
    at = torch.arange(tokens, dtype=torch.float64) / 32
    bands = torch.tensor([1e-4, 1.00005, 2.0], dtype=torch.float64)
    angles = 2 * math.pi * at[:, None] * bands
    hidden = torch.cat([at[:, None], angles.cos(), angles.sin()], -1)
    for layer in attention.hidden:
        hidden = torch.sin(attention.frequency * layer(hidden))
    filters = attention.filters(hidden).unflatten(-1, (order, DIM))
    fall = torch.linspace(math.log(100) / 1.5, math.log(100) / 0.3, DIM, dtype=torch.float64)
    filters = filters * (torch.exp(-fall * at[:, None]) + 0.05)[:, None]
    skip = attention.skip.unflatten(0, (order, DIM))
    for n in range(order):
        sums = [sum(filters[t - s, n] * z[s] for s in range(t + 1)) for t in range(tokens)]
        z = gates[n] * (torch.stack(sums) + skip[n] * z)
    close(run(attention, x_BTD)[0], attention.output(z))


def test_hyenas_filters_span_the_longest_sequence_unless_told() -> None:
    assert Hyena(Hyena.Config(), dim=4, heads=1).period == 1024
    assert Hyena(Hyena.Config(), dim=4, heads=1, length=77).period == 77
    assert Hyena(Hyena.Config(length=5), dim=4, heads=1, length=77).period == 5


@MIXERS
@settings(max_examples=12)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(0, 4), st.booleans())
def test_pieces_through_the_cache_equal_the_full_pass(
    mixer: type[Attention], pieces: list[int], pad: int, packed: bool
) -> None:
    """Prompts that are padded on the left or packed, and what follows, against each document alone."""
    attention, tokens = made(mixer), sum(pieces)
    x_BTD, cache, outs = noise(2, tokens), Cache(), []
    packed = packed and "documents" in mixer.offers
    pad = min(pad, pieces[0] - 1)
    valid_BS = torch.ones(2, tokens, dtype=torch.bool)
    valid_BS[0, :pad] = False
    rows = torch.tensor([[3] * 4 + [1] * 4 + [6] * 60, [2] * 5 + [9] * 63])[:, :tokens] if packed else None
    begin = 0
    with torch.no_grad():
        for piece in pieces:
            here = slice(begin, begin + piece)
            documents_BS = None if rows is None else rows[:, here]
            mask = Mask(causal=True, valid_BS=valid_BS[:, here], documents_BS=documents_BS)
            outs.append(run(attention, x_BTD[:, here], mask, cache))
            begin += piece
        got = torch.cat(outs, 1)
        for row in range(2):
            numbers = [0] * tokens if rows is None else rows[row].tolist()
            for number in dict.fromkeys(numbers):
                own = [t for t in range(tokens) if numbers[t] == number and bool(valid_BS[row, t])]
                if own:
                    close(got[row, own], run(attention, x_BTD[row : row + 1, own])[0])


@MIXERS
def test_memory_while_generating(mixer: type[Attention]) -> None:
    """A state of fixed size and the last inputs; Hyena keeps its inputs, M D numbers a token, by doubling."""
    attention, cache, sizes = made(mixer, dtype=torch.float32), Cache(), []
    with torch.no_grad():
        for _ in range(3):
            run(attention, noise(1, 1).float(), CAUSAL, cache)
            sizes.append(cache.bytes() // 4)
    state = {Retention: 2 * 8 * 16, GatedLinear: 2 * 4 * 8, DeltaNet: 2 * 8 * 8, GatedDeltaNet: 2 * 6 * 12}
    state |= {Mamba2: 2 * 6 * 16, RWKV7: 2 * 8 * 8, Hyena: 0}
    past = {DeltaNet: 3 * 48, GatedDeltaNet: 3 * (6 + 6 + 24), Mamba2: 3 * (32 + 12), RWKV7: 16, Hyena: 2 * 48}
    grows = 2 * DIM if mixer is Hyena else 0
    assert sizes == [state[mixer] + past.get(mixer, 0) + grows * tokens for tokens in (1, 2, 3)]


@MIXERS
def test_bfloat16_stays_near_float64(mixer: type[Attention]) -> None:
    """The recurrence's inputs, what it gives and what is multiplied onto that are rounded to 8 bits, its sums aren't.

    Each of these roundings is uniform, up to half a unit of precision, so 0.3 of one in the root mean square; random
    signs don't let them grow with the 100 tokens. Some ten of them in a row make 1, and 2 are allowed.
    """
    low, x_BTD = made(mixer, dtype=torch.bfloat16), noise(2, 100).bfloat16()
    exact = made(mixer)
    exact.load_state_dict({name: tensor.double() for name, tensor in low.state_dict().items()})
    with torch.no_grad():
        within_rounding(run(low, x_BTD), run(exact, x_BTD.double()), torch.bfloat16, "bfloat16", roundings=2)


@MIXERS
def test_gradients_of_a_long_row_equal_finite_differences(mixer: type[Attention]) -> None:
    """Past a chunk's border, with padding and documents where they are offered."""
    attention, x_BTD = made(mixer), noise(1, 70)
    mask = Mask(causal=True, valid_BS=torch.arange(70)[None] > 3)
    if "documents" in mixer.offers:
        mask = Mask(causal=True, valid_BS=mask.valid_BS, documents_BS=torch.arange(70)[None] // 33)
    weights = noise(1, 70, DIM + 1)[..., 1:]
    total = lambda: (run(attention, x_BTD, mask) * weights)[:, 4:].sum()  # noqa: E731
    x_BTD.requires_grad_()
    tensors = [x_BTD, *attention.parameters()]
    gradients = torch.autograd.grad(total(), tensors)
    for index, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=True)):
        generator = torch.Generator().manual_seed(index)
        direction = torch.randn(tensor.shape, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            original, values = tensor.clone(), []
            for sign in (1, -1):
                tensor.copy_(original + sign * 1e-6 * direction)
                values.append(float(total()))
            tensor.copy_(original)
        assert float((gradient * direction).sum()) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    ("mixer", "knobs", "heads", "message"),
    [
        (GatedDeltaNet, {"key_heads": 3}, 4, "4 heads can't share 3 heads of keys evenly"),
        (GatedDeltaNet, {}, 3, "width 16 is not divisible by 3 heads"),
        (Mamba2, {"groups": 3}, 4, "4 heads can't share 3 groups evenly"),
        (Mamba2, {}, 3, r"inner width 32 \(expand 2 x 16\) is not divisible by 3 heads"),
        (RWKV7, {}, 3, "width 16 is not divisible by 3 heads"),
        (GatedLinear, {}, 3, "width 16 is not divisible by 3 heads"),
        (Hyena, {"order": 0}, 1, "order, depth and bands must be at least 1, got 0, 3 and 3"),
        (DeltaNet, {"taps": 1}, 4, "at least 2 taps, got 1"),
    ],
)
def test_what_can_not_be(mixer: type[Attention], knobs: dict[str, Any], heads: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(mixer, heads=heads, **knobs)


@MIXERS
def test_what_is_not_offered_is_refused(mixer: type[Attention]) -> None:
    attention, x_BTD = made(mixer), noise(1, 3)
    for mask in (Mask(), Mask(causal=True, window=2), Mask(causal=True, prefix_B=torch.tensor([2]))):
        with pytest.raises(ValueError, match=f"{mixer.__name__} was asked for"):
            run(attention, x_BTD, mask)
