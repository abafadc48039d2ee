"""Biases by distance, and rotation with decay: against transformers where it has them, else against loops."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import Wav2Vec2BertConfig, XLNetConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import (
    Wav2Vec2BertSelfAttention,
    _apply_relative_key_position_encoding,
)
from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

from zoo.contracts.position import Position
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.call import Call
from zoo.contracts.values.mask import Mask
from zoo.contracts.values.notes import Notes
from zoo.contracts.values.place import Place
from zoo.initialization import initialize
from zoo.nn.slopes import slopes
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.position.alibi import Alibi
from zoo_builtin.position.cope import Cope
from zoo_builtin.position.fire import Fire
from zoo_builtin.position.kerple import Kerple
from zoo_builtin.position.shaw import Shaw
from zoo_builtin.position.transformer_xl import TransformerXL
from zoo_builtin.position.xpos import XPos

CPU = torch.device("cpu")
AT = torch.tensor([0, 1, 2, 5, 9, 31])[None, :, None]


def made(
    cls: type[Position], *, heads: int = 2, size: int = 4, dim: int = 8, causal: bool = False, **knobs: Any
) -> Any:
    scheme = cls.part(**knobs)(dim=dim, heads=heads, size=size, length=64, causal=causal)
    initialize(scheme, 0, std=0.5, branch_std=0.5)
    return scheme.double()


def heads_of(tokens: int, *, heads: int = 2, size: int = 4, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(2, 3, heads, tokens, size, dtype=torch.float64)  # queries and keys, batch 3


def bias_of(
    scheme: Position,
    q_BNTH: Tensor,
    k_BNSH: Tensor,
    at_BTA: Tensor = AT,
    keys_BSA: Tensor = AT,
    mask: Mask | None = None,
) -> Tensor:
    place = Place(scheme, at_BTA, keys_BSA)
    sized = (mask or Mask()).sized(q_BNTH.shape[2], k_BNSH.shape[2], start=k_BNSH.shape[2] - q_BNTH.shape[2])
    call = Call(
        mask=sized,
        place=place,
        scale=0.7,
        x_BTD=q_BNTH,
        cache=None,
        notes=Notes(),
        layer=0,
        kind="self",
        kernel="eager",
        dropout=0.0,
        dtype=q_BNTH.dtype,
    )
    bias = place.bias(q_BNTH, k_BNSH, call)
    assert bias is not None
    return bias


def by_distance(scheme: Position, at_BTA: Tensor = AT) -> Tensor:
    """(N, T, S) of a scheme that reads no content."""
    q_BNTH = torch.zeros(1, scheme.heads, at_BTA.shape[1], scheme.size, dtype=torch.float64)
    return bias_of(scheme, q_BNTH, q_BNTH, at_BTA, at_BTA)[0].detach()


# ALiBi


@pytest.mark.parametrize(
    ("heads", "published"),
    [
        (1, [0.00390625]),
        (2, [0.0625, 0.00390625]),
        (3, [0.0625, 0.00390625, 0.25]),
        (4, [0.25, 0.0625, 0.015625, 0.00390625]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (8, [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625]),
        (12, [2.0**-k for k in range(1, 9)] + [0.707107, 0.353553, 0.176777, 0.088388]),
    ],
)
def test_slopes_are_the_published_ones(heads: int, published: list[float]) -> None:
    assert slopes(heads, CPU).tolist() == pytest.approx(published, rel=1e-5)


@given(st.integers(1, 40))
def test_a_causal_row_is_that_of_bloom_and_mpt(heads: int) -> None:
    """Theirs add slope x key position, ours take off slope x distance: equal up to a constant in each row."""
    scheme, at_BTA = made(Alibi, heads=heads, size=1), torch.arange(7)[None, :, None]
    ours = by_distance(scheme, at_BTA).float()
    bloom = build_alibi_tensor(torch.ones(1, 7, dtype=torch.int64), heads, torch.float32)
    mpt = build_mpt_alibi_tensor(heads, 7)
    for theirs in (bloom, mpt):
        for row in range(7):
            want = theirs[:, 0, : row + 1] - theirs[:, 0, row : row + 1]
            torch.testing.assert_close(ours[:, row, : row + 1], want, rtol=1e-6, atol=1e-6)


def test_alibi_is_alike_on_both_sides_and_exact_in_float64() -> None:
    bias = by_distance(made(Alibi, heads=12, size=1))
    assert bias.dtype == torch.float64 and torch.equal(bias, bias.transpose(1, 2))
    assert float(bias[8, 0, 5]) == -31 * 2 ** (-0.5)
    assert by_distance(made(Alibi, heads=12, size=1).float()).dtype == torch.float32
    assert by_distance(made(Alibi, heads=12, size=1).bfloat16()).dtype == torch.float32
    assert float(by_distance(made(Alibi, heads=1, exponent=2.0))[0, 0, 1]) == -0.25


# By content


def test_shaw_is_relative_key_of_wav2vec2_bert_with_equal_sides() -> None:
    config = Wav2Vec2BertConfig(
        hidden_size=8,
        num_attention_heads=2,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=3,
        right_max_position_embeddings=3,
    )
    theirs, scheme = Wav2Vec2BertSelfAttention(config).double(), made(Shaw, reach=3)
    with torch.no_grad():
        scheme.table.weight.copy_(theirs.distance_embedding.weight)
    q, k = heads_of(9)
    at_BTA = torch.arange(9)[None, :, None]
    want = _apply_relative_key_position_encoding(theirs, q, k)[1] / theirs.scaling * 0.7
    torch.testing.assert_close(bias_of(scheme, q, k, at_BTA, at_BTA), want, rtol=0, atol=1e-12)


def test_shaw_is_its_equation() -> None:
    scheme, (q, k) = made(Shaw, reach=4), heads_of(6)
    bias = bias_of(scheme, q, k)
    for t in range(6):
        for s in range(6):
            offset = int((AT[0, s] - AT[0, t]).clamp(-4, 4))
            want = 0.7 * q[:, :, t] @ scheme.table.weight[offset + 4]
            torch.testing.assert_close(bias[:, :, t, s], want, rtol=0, atol=1e-12)


def sinusoid(offset: float, dim: int) -> Tensor:
    phases = [offset / 10000 ** (2 * pair / dim) for pair in range(dim // 2)]
    return torch.tensor([*map(math.sin, phases), *map(math.cos, phases)], dtype=torch.float64)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("reach", [None, 8])
def test_transformer_xl_is_its_equation(causal: bool, reach: int | None) -> None:
    scheme, (q, k) = made(TransformerXL, reach=reach, causal=causal), heads_of(6)
    bias = bias_of(scheme, q, k)
    projection = scheme.project.weight.unflatten(0, (2, 4))  # heads, size, width
    for t in range(6):
        for s in range(t + 1 if causal else 6):
            offset = int(AT[0, t] - AT[0, s])
            offset = offset if reach is None else max(-reach, min(reach, offset))
            for n in range(2):
                r = projection[n] @ sinusoid(offset, 8)
                want = scheme.u[n] @ k[:, n, s].T + (q[:, n, t] + scheme.v[n]) @ r
                torch.testing.assert_close(bias[:, n, t, s], 0.7 * want, rtol=0, atol=1e-12)


def test_transformer_xl_is_the_attention_of_xlnet() -> None:
    """XLNet's core, without segments: scores from q, k, and the projected sinusoids, shifted."""
    config = XLNetConfig(d_model=8, n_head=2, d_inner=8, n_layer=1, vocab_size=4, dropout=0.0)
    theirs, scheme = XLNetRelativeAttention(config).double(), made(TransformerXL)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    with torch.no_grad():
        scheme.project.weight.copy_(theirs.r.flatten(1).T)
        scheme.u.copy_(theirs.r_w_bias)
        scheme.v.copy_(theirs.r_r_bias)
    (q, k), tokens = heads_of(6), 6
    r = XLNetModel(config).relative_positional_encoding(tokens, tokens, 1).double()  # offsets 6, 5, ..., -5
    k_r = torch.einsum("ibh,hnd->ibnd", r, theirs.r).expand(-1, 3, -1, -1)
    rows = [x.permute(2, 0, 1, 3) for x in (q, k)]
    _, weights = theirs.rel_attn_core(*rows, rows[1], k_r, output_attentions=True)
    at_BTA = torch.arange(tokens)[None, :, None]
    scores = 0.7 * q @ k.transpose(-1, -2) + bias_of(scheme, q, k, at_BTA, at_BTA)
    got = (scores / 0.7 * 4**-0.5).softmax(-1)
    torch.testing.assert_close(got, weights.permute(2, 3, 0, 1), rtol=0, atol=1e-6)  # their sinusoids are float32


def cope_by_a_loop(scheme: Cope, q: Tensor, k: Tensor, allowed: Tensor, order: list[int]) -> Tensor:
    """Of one row and head, from the equations: queries (T, H), keys (S, H), allowed (T, S)."""
    bias = torch.zeros(len(q), len(k), dtype=torch.float64)
    for t in range(len(q)):
        gates = [torch.sigmoid(0.7 * q[t] @ k[s]) * float(allowed[t, s]) for s in range(len(k))]
        for rank, s in enumerate(order):
            count = min(float(sum(gates[later] for later in order[rank:])), scheme.config.positions - 1)
            low, high = (q[t] @ scheme.table[index] for index in (math.floor(count), math.ceil(count)))
            bias[t, s] = 0.7 * (low * (1 - count % 1) + high * (count % 1))
    return bias


@pytest.mark.parametrize("positions", [3, 16])
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [2, 0, 1, 5, 4, 3]])
def test_cope_is_its_equation(positions: int, order: list[int]) -> None:
    """Counts reach past the last position with 3 of them; keys in another order are counted by their positions."""
    scheme, (q, k) = made(Cope, positions=positions), heads_of(6)
    with torch.no_grad():
        scheme.table.normal_()
    valid = torch.ones(3, 6, dtype=torch.bool)
    valid[1, :2] = False
    mask = Mask(causal=True, valid_BS=valid)
    at_BTA = torch.tensor(order).argsort()[None, :, None]
    bias = bias_of(scheme, q, k, at_BTA, at_BTA, mask)
    for row in range(3):
        allowed = torch.ones(6, 6).tril().bool() & valid[row]
        for n in range(2):
            want = cope_by_a_loop(scheme, q[row, n], k[row, n], allowed, order)
            torch.testing.assert_close(bias[row, n], want, rtol=0, atol=1e-12)


def test_cope_begins_with_counts_that_mean_nothing() -> None:
    q, k = heads_of(6)
    assert not bias_of(made(Cope), q, k).any()


# By learned curves


def test_kerple_is_its_equations() -> None:
    for curve in ("log", "power"):
        scheme = made(Kerple, heads=3, curve=curve)
        bias = by_distance(scheme)
        for n in range(3):
            r1 = math.log1p(math.exp(scheme.height[n].item()))
            raw = scheme.shape[n].item()
            r2 = math.log1p(math.exp(raw)) if curve == "log" else 2 / (1 + math.exp(-raw))
            for t in range(6):
                for s in range(6):
                    distance = abs(int(AT[0, t] - AT[0, s]))
                    want = -r1 * (math.log1p(r2 * distance) if curve == "log" else distance**r2)
                    assert float(bias[n, t, s]) == pytest.approx(want, rel=1e-12, abs=1e-15)


def test_kerple_begins_as_published_and_the_power_1_is_alibi() -> None:
    scheme = made(Kerple, heads=400)
    r1, r2 = (nn.functional.softplus(parameter.detach()) for parameter in (scheme.height, scheme.shape))
    assert 0.0099 < float(r1.min()) < 0.05 and 1.9 < float(r1.max()) <= 2.0
    assert 0.0099 < float(r2.min()) < 0.05 and 0.95 < float(r2.max()) <= 1.0
    power, alibi = made(Kerple, heads=4, curve="power"), made(Alibi, heads=4)
    with torch.no_grad():
        power.shape.zero_()  # 2 sigmoid(0) = 1
        power.height.copy_(slopes(4, CPU).expm1().log())
    torch.testing.assert_close(by_distance(power), by_distance(alibi), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("threshold", [4.0, 512.0])
def test_fire_is_its_equation(threshold: float) -> None:
    scheme = made(Fire, heads=3, hidden=5, threshold=threshold)
    with torch.no_grad():
        scheme.up.bias.normal_()
        scheme.stretch.fill_(1.25)
    bias, c = by_distance(scheme), scheme.c.item()
    assert c == pytest.approx(0.1)
    for t in range(6):
        for s in range(6):
            distance, whole = abs(int(AT[0, t] - AT[0, s])), max(float(AT[0, t]), 1.25 * threshold)
            part = math.log(c * distance + 1) / (math.log(c * whole + 1) + 1e-6)
            hidden = (scheme.up.weight[:, 0] * part + scheme.up.bias).relu()
            want = scheme.down.weight @ hidden + scheme.down.bias
            torch.testing.assert_close(bias[:, t, s], want, rtol=1e-12, atol=1e-14)


# Rotation with decay


@pytest.mark.parametrize("pairs", ["interleaved", "half"])
def test_xpos_is_its_equation(pairs: str) -> None:
    """q_t R(t - s) k_s in each pair, times zeta^((t - s) / 512)."""
    scheme, (q, k) = made(XPos, heads=1, size=8, pairs=pairs), heads_of(6, heads=1, size=8)
    place = Place(scheme, AT, AT)
    scores = (place.rotate(q) @ place.rotate_keys(k).transpose(-1, -2))[:, 0]
    for t in range(6):
        for s in range(6):
            distance, want = int(AT[0, t] - AT[0, s]), torch.zeros(3, dtype=torch.float64)
            for pair in range(4):
                first, second = (pair, pair + 4) if pairs == "half" else (2 * pair, 2 * pair + 1)
                zeta, angle = (2 * pair / 8 + 0.4) / 1.4, distance * 10000 ** (-2 * pair / 8)
                (a, b), (c, d) = ((x[:, 0, at, first], x[:, 0, at, second]) for x, at in ((q, t), (k, s)))
                turned = (a * c + b * d) * math.cos(angle) + (a * d - b * c) * math.sin(angle)
                want += turned * zeta ** (distance / 512)
            torch.testing.assert_close(scores[:, t, s], want, rtol=0, atol=1e-11)


def test_xpos_decays_and_rotates_keys_otherwise_than_queries() -> None:
    scheme, ones = made(XPos, heads=1, size=8), torch.ones(1, 1, 6, 8, dtype=torch.float64)
    far = torch.tensor([0, 1, 2, 512, 1024, 4095])[None, :, None]
    place = Place(scheme, far, far)
    lengths = place.rotate(ones).square().sum(-1).sqrt()[0, 0]
    assert (lengths.diff() < 0).all() and (place.rotate_keys(ones).square().sum(-1)[0, 0].diff() > 0).all()
    pair = (place.rotate(ones) * place.rotate_keys(ones))[0, 0]
    torch.testing.assert_close(pair.sum(-1), torch.full((6,), 8.0, dtype=torch.float64), rtol=0, atol=1e-12)


# All of them


SCHEMES = [Alibi, Shaw, TransformerXL, Cope, Kerple, Fire, XPos]


@pytest.mark.parametrize("cls", SCHEMES)
def test_left_padded_prompts_go_on_from_a_cache_as_alone(cls: type[Position]) -> None:
    """Steps of 1 and more, in both kernels, after prompts of 5 and 2 tokens."""
    scheme = made(cls, causal=True)
    for kernel in ("eager", "sdpa"):
        torch.manual_seed(1)
        layer = MultiHead.part(kernel=kernel)(dim=8, heads=2).double()
        x_BTD, cache, outs = torch.randn(2, 9, 8, dtype=torch.float64), Cache(), []
        valid = torch.ones(2, 5, dtype=torch.bool)
        valid[1, :3] = False
        for piece_BTD, mask in zip(
            x_BTD.split([5, 1, 3], 1),
            (Mask(causal=True, valid_BS=valid), Mask(causal=True), Mask(causal=True)),
            strict=True,
        ):
            sized, at_BTA, keys_BSA = cache.extend(mask, piece_BTD)
            place = Place(scheme, at_BTA, keys_BSA)
            outs.append(layer(piece_BTD, mask=sized, place=place, cache=cache.layer((0, "self"))))
        got = torch.cat(outs, 1)
        for row, begin in enumerate((0, 3)):
            own_BTD = x_BTD[row : row + 1, begin:]
            mask, at_BTA, keys_BSA = Cache().extend(Mask(causal=True), own_BTD)
            want = layer(own_BTD, mask=mask, place=Place(scheme, at_BTA, keys_BSA))
            torch.testing.assert_close(got[row, begin:], want[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("cls", SCHEMES[:-1])
def test_tokens_that_stand_nowhere_have_no_bias_and_are_not_counted(cls: type[Position]) -> None:
    scheme, (q, k) = made(cls), heads_of(6)
    if cls is Cope:
        with torch.no_grad():
            scheme.table.normal_()
    at_BTA = torch.tensor([-1, 0, 1, 2, 3, 4])[None, :, None]
    place = Place(scheme, at_BTA, at_BTA, nowhere=True)
    layer = MultiHead.part()(dim=8, heads=2)
    call = layer.call(q, mask=Mask().sized(6, 6), place=place, cache=None, notes=None, dtype=q.dtype)
    bias = place.bias(q, k, call)
    assert bias is not None and not bias[:, :, 0].any() and not bias[..., 0].any()
    alone = Place(scheme, at_BTA[:, 1:], at_BTA[:, 1:])
    call = layer.call(q, mask=Mask().sized(5, 5), place=alone, cache=None, notes=None, dtype=q.dtype)
    want = alone.bias(q[:, :, 1:], k[:, :, 1:], call)
    assert want is not None
    torch.testing.assert_close(bias[:, :, 1:, 1:], want.expand(bias.shape[0], -1, -1, -1), rtol=0, atol=1e-14)


def test_what_they_need() -> None:
    assert {cls.__name__: sorted(cls.needs()) for cls in SCHEMES} == {
        "Alibi": ["bias"],
        "Shaw": ["bias", "content_bias"],
        "TransformerXL": ["bias", "content_bias"],
        "Cope": ["bias", "content_bias"],
        "Kerple": ["bias"],
        "Fire": ["bias"],
        "XPos": ["rotate"],
    }


def test_knobs_that_can_not_be_are_named() -> None:
    for cls, knobs, message in [
        (Shaw, {"reach": 0}, "reach must be at least 1, got 0"),
        (Cope, {"positions": 1}, "cope needs at least 2 positions to count, got 1"),
        (Fire, {"threshold": 0.0}, "threshold must be above 0, got 0.0"),
        (XPos, {"gamma": 0.0}, "xpos needs gamma and base above 0, got 0.0 and 512.0"),
        (XPos, {"size": 5}, "xpos needs an even head dim, got 5"),
        (TransformerXL, {"dim": 9}, "transformer_xl needs an even width and a reach of 1, got 9"),
    ]:
        with pytest.raises(ValueError, match=message):
            made(cls, **knobs)
    with pytest.raises(ValueError, match=r"how far offsets go; set its reach, or architecture\.max_length"):
        TransformerXL.part()(dim=8, heads=2, size=4)
