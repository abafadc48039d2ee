"""Mixers that are no attention: against torch, timm and transformers, and loops over their equations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mask_strategy import batch_of, masks
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import CAUSAL, EVERYTHING, Mask
from zoo.initialization import initialize
from zoo.nn.recurrence import Steps
from zoo_builtin.attention.fourier import Fourier
from zoo_builtin.attention.gru import Gru
from zoo_builtin.attention.identity import Identity
from zoo_builtin.attention.pooling import Pooling
from zoo_builtin.attention.token_mlp import TokenMlp


def made(cls: Any, dim: int = 8, length: int | None = 12, **knobs: Any) -> Any:
    layer = cls(cls.Config(**knobs), dim=dim, heads=2, length=length)
    initialize(layer, 0, std=0.4, branch_std=0.4)
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.2)
    return layer.double()


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def in_pieces(layer: Any, x_BTD: Tensor, pieces: list[int], first: Mask = CAUSAL) -> Tensor:
    cache, outs = Cache(), []
    for index, piece_BTD in enumerate(x_BTD.split(pieces, 1)):
        mask, _, _ = cache.extend(CAUSAL if index else first, piece_BTD)
        with torch.no_grad():
            outs.append(layer(piece_BTD, mask=mask, cache=cache.layer((0, "self"))))
    return torch.cat(outs, 1)


def fourier(x_TD: Tensor) -> Tensor:
    """Re(F_T X F_D), with matrices."""
    matrices = []
    for size in x_TD.shape:
        at = torch.arange(size, dtype=torch.float64)
        matrices.append(
            torch.polar(torch.ones(size, size, dtype=torch.float64), -2 * math.pi * at[:, None] * at / size)
        )
    return (matrices[0] @ x_TD.to(torch.complex128) @ matrices[1]).real


@pytest.mark.parametrize("tokens", [1, 5, 8])
def test_fourier_is_its_equation_and_keeps_lengths(tokens: int) -> None:
    x_BTD, mask = drawn(2, tokens, 8), EVERYTHING.sized(tokens, tokens)
    want = torch.stack([fourier(row) for row in x_BTD])
    torch.testing.assert_close(made(Fourier, scale=1.0)(x_BTD, mask=mask), want, atol=1e-12, rtol=0)
    torch.testing.assert_close(made(Fourier)(x_BTD, mask=mask), want / (tokens * 8) ** 0.5, atol=1e-12, rtol=0)


def test_fourier_is_the_published_layer() -> None:
    modeling = pytest.importorskip("transformers.models.fnet.modeling_fnet")
    config = pytest.importorskip("transformers").FNetConfig(use_tpu_fourier_optimizations=False)
    x_BTD = drawn(2, 9, 8)
    (want,) = modeling.FNetBasicFourierTransform(config)(x_BTD)
    got = made(Fourier, scale=1.0)(x_BTD, mask=EVERYTHING.sized(9, 9))
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


def test_a_document_is_transformed_by_itself_whatever_lies_around_it() -> None:
    """Documents, padding on both sides and in the middle; the same number again later is the same document."""
    documents_BS = torch.tensor([[0, 0, 0, 1, 1, 2, 0], [3, 3, 3, 3, 3, 3, 3]])
    valid_BS = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 1, 0, 1, 1, 1, 0]]).bool()
    x_BTD = drawn(2, 7, 8)
    out = made(Fourier, scale=1.0)(x_BTD, mask=Mask(documents_BS=documents_BS, valid_BS=valid_BS).sized(7, 7))
    for row, slots in ((0, [0, 1, 2, 6]), (0, [3, 4]), (0, [5]), (1, [1, 3, 4, 5])):
        torch.testing.assert_close(out[row, slots], fourier(x_BTD[row, slots]), atol=1e-12, rtol=0)
    assert not out[1, [0, 2, 6]].any()


def test_matrices_of_a_long_document_are_as_exact_as_the_fast_transform() -> None:
    """Phases are whole numbers of turns before they are rounded; error relative to the root of the length."""
    x_BTD = torch.randn(1, 1500, 8)
    exact = torch.fft.fft2(x_BTD.double()).real / (1500 * 8) ** 0.5
    one_document = Mask(documents_BS=torch.zeros(1, 1500, dtype=torch.int64)).sized(1500, 1500)
    layer = Fourier.part()(dim=8, heads=2)
    fast = float((layer(x_BTD, mask=EVERYTHING.sized(1500, 1500)) - exact).abs().max())
    slow = float((layer(x_BTD, mask=one_document) - exact).abs().max())
    assert fast < 2e-6
    assert slow < 1e-5


def test_token_mixing_is_the_published_layer() -> None:
    mixer = pytest.importorskip("timm.models.mlp_mixer")
    block = mixer.MixerBlock(8, 12, mlp_ratio=(0.5, 4.0)).double()
    block.norm1 = nn.Identity()
    layer = made(TokenMlp, hidden=4)
    theirs = {"fc1.weight": layer.up.weight, "fc1.bias": layer.up.bias}
    theirs |= {"fc2.weight": layer.down.weight, "fc2.bias": layer.down.bias}
    block.mlp_tokens.load_state_dict(theirs)
    x_BTD = drawn(2, 12, 8)
    want = block.mlp_tokens(x_BTD.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(layer(x_BTD, mask=EVERYTHING.sized(12, 12)), want, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("dim", "length", "hidden"), [(512, 196, 256), (768, 196, 384), (1024, 196, 512), (8, 12, 12)])
def test_hidden_units_are_half_the_width_as_published_and_one_for_each_token(
    dim: int, length: int, hidden: int
) -> None:
    with torch.device("meta"):
        assert TokenMlp.part()(dim=dim, heads=1, length=length).hidden == hidden


def test_a_shorter_input_is_filled_up_with_zeros() -> None:
    layer, x_BTD = made(TokenMlp), drawn(2, 7, 8)
    filled = layer(F.pad(x_BTD, (0, 0, 0, 5)), mask=EVERYTHING.sized(12, 12))[:, :7]
    torch.testing.assert_close(layer(x_BTD, mask=EVERYTHING.sized(7, 7)), filled, atol=1e-12, rtol=0)


@pytest.mark.parametrize("hidden", [12, 17, 24])
@pytest.mark.parametrize("tokens", [1, 5, 12])
def test_causal_token_mixing_is_triangular(hidden: int, tokens: int) -> None:
    layer, x_BTD = made(TokenMlp, hidden=hidden), drawn(2, tokens, 8)
    want = layer.down.bias[:tokens, None].expand(2, -1, 8).clone()
    for unit in range(hidden):
        owner = unit * 12 // hidden
        if owner < tokens:
            value_BD = layer.up.bias[unit] + torch.einsum(
                "s,bsd->bd", layer.up.weight[unit, : owner + 1], x_BTD[:, : owner + 1]
            )
            for t in range(owner, tokens):
                want[:, t] += layer.down.weight[t, unit] * F.gelu(value_BD)
    torch.testing.assert_close(layer(x_BTD, mask=CAUSAL.sized(tokens, tokens)), want, atol=1e-12, rtol=0)


def test_what_token_mixing_can_not_be() -> None:
    with pytest.raises(ValueError, match="token_mlp needs to know the most tokens there can be"):
        made(TokenMlp, length=None)
    with pytest.raises(ValueError, match="hidden must be at least 1, got 0"):
        made(TokenMlp, hidden=0)
    with pytest.raises(ValueError, match="13 tokens, token_mlp was made for 12"):
        made(TokenMlp)(drawn(1, 13, 8), mask=EVERYTHING.sized(13, 13))
    with pytest.raises(ValueError, match="4 hidden units can't be causal over 12 tokens"):
        made(TokenMlp, hidden=4)(drawn(1, 3, 8), mask=CAUSAL.sized(3, 3))


@pytest.mark.parametrize("tokens", [1, 2, 9, 40])
@pytest.mark.parametrize("size", [3, 5])
def test_pooling_is_the_published_layer_on_a_row_of_patches(tokens: int, size: int) -> None:
    metaformer = pytest.importorskip("timm.models.metaformer")
    x_BTD = drawn(2, tokens, 8)
    want = metaformer.Pooling(size)(x_BTD.mT[:, :, None])[:, :, 0].mT
    got = made(Pooling, size=size)(x_BTD, mask=EVERYTHING.sized(tokens, tokens))
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


@settings(max_examples=60)
@given(masks().filter(lambda mask: mask.queries == mask.keys and mask.start == mask.first), st.sampled_from([3, 5]))
def test_pooling_is_a_mean_over_what_may_be_seen(mask: Mask, size: int) -> None:
    x_BTD = drawn(batch_of(mask), mask.keys, 8)
    near = mask.narrow(window=size if mask.causal else size // 2 + 1).dense(x_BTD.device)
    near = torch.ones(1, 1, mask.keys, mask.keys).bool() if near is None else near
    got = made(Pooling, size=size)(x_BTD, mask=mask)
    for row, allowed_TS in enumerate(near[:, 0].expand(len(x_BTD), -1, -1)):
        for t, allowed_S in enumerate(allowed_TS):
            want = x_BTD[row, allowed_S].mean(0) - x_BTD[row, t] if allowed_S.any() else torch.zeros(8).double()
            torch.testing.assert_close(got[row, t], want, atol=1e-12, rtol=0)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.sampled_from([3, 5]))
def test_pooling_goes_on_from_its_last_tokens(pieces: list[int], size: int) -> None:
    layer, x_BTD = made(Pooling, size=size), drawn(2, sum(pieces), 8)
    want = layer(x_BTD, mask=CAUSAL.sized(sum(pieces), sum(pieces)))
    torch.testing.assert_close(in_pieces(layer, x_BTD, pieces), want, atol=1e-12, rtol=0)


def test_pooling_keeps_as_many_tokens_as_it_averages() -> None:
    cache, layer = Cache(), made(Pooling)
    for _ in range(6):
        mask, _, _ = cache.extend(CAUSAL, torch.zeros(1, 1))
        layer(drawn(1, 1, 8), mask=mask, cache=cache.layer((0, "self")))
    assert cache.bytes() == 3 * 8 * 8


@pytest.mark.parametrize("size", [1, 4])
def test_a_pool_that_is_not_odd_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"size must be an odd number from 3 on, got {size}"):
        made(Pooling, size=size)


def gru(layer: Gru) -> nn.GRU:
    other = nn.GRU(8, 8, batch_first=True).double()
    state = {"weight_ih_l0": layer.input.weight, "bias_ih_l0": layer.input.bias}
    other.load_state_dict(state | {"weight_hh_l0": layer.recurrent.weight, "bias_hh_l0": layer.recurrent.bias})
    return other


def test_a_gru_is_that_of_torch_and_a_projection() -> None:
    layer, x_BTD = made(Gru), drawn(2, 7, 8)
    want = layer.output(gru(layer)(x_BTD)[0])
    torch.testing.assert_close(layer(x_BTD, mask=CAUSAL.sized(7, 7)), want, atol=1e-12, rtol=0)


def test_documents_begin_a_gru_anew_and_padding_is_skipped() -> None:
    layer, x_BTD = made(Gru), drawn(3, 7, 8)
    other = gru(layer)
    documents_BS = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [5, 5, 5, 5, 5, 5, 6], [0, 0, 0, 0, 0, 0, 0]])
    valid_BS = torch.tensor([[1] * 7, [0, 0, 1, 0, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]]).bool()
    out = layer(x_BTD, mask=Mask(causal=True, documents_BS=documents_BS, valid_BS=valid_BS).sized(7, 7))
    pieces = [(0, [0, 1, 2]), (0, [3, 4]), (0, [5, 6]), (1, [2, 4, 5]), (1, [6]), (2, [0, 1, 2, 3])]
    for row, slots in pieces:
        want = layer.output(other(x_BTD[row : row + 1, slots])[0])[0]
        torch.testing.assert_close(out[row, slots], want, atol=1e-12, rtol=0)
    assert torch.equal(out[1, [0, 1, 3]], layer.output.bias.expand(3, -1))


@settings(max_examples=30)
@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=3))
def test_the_fused_recurrence_is_the_loop(valid: list[list[bool]]) -> None:
    layer, valid_BT = made(Gru), torch.tensor(valid)
    x_BTD, state_BD = drawn(len(valid), 6, 8).requires_grad_(), drawn(len(valid), 8).requires_grad_()
    results = []
    for run in (layer._fused, layer._stepped):
        h_BTD, last_BD = run(x_BTD, state_BD, Steps(valid_BT))
        target = (h_BTD * torch.linspace(-1, 2, h_BTD.numel()).reshape(h_BTD.shape)).sum() + last_BD.square().sum()
        parameters = [*layer.input.parameters(), *layer.recurrent.parameters()]
        results.append((h_BTD, last_BD, *torch.autograd.grad(target, [x_BTD, state_BD, *parameters])))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 3), st.booleans())
def test_pieces_of_a_gru_go_on_from_its_state(pieces: list[int], padding: int, packed: bool) -> None:
    layer, tokens, prompt = made(Gru), sum(pieces), pieces[0]
    x_BTD, valid_BS = drawn(2, tokens, 8), torch.ones(2, tokens).bool()
    valid_BS[1, : min(padding, prompt - 1)] = False
    documents_BS = (torch.arange(tokens) >= prompt // 2).long().expand(2, -1) if packed else None
    want = layer(x_BTD, mask=Mask(causal=True, valid_BS=valid_BS, documents_BS=documents_BS).sized(tokens, tokens))
    cut = None if documents_BS is None else documents_BS[:, :prompt]
    first = Mask(causal=True, valid_BS=valid_BS[:, :prompt], documents_BS=cut)
    torch.testing.assert_close(in_pieces(layer, x_BTD, pieces, first), want, atol=1e-12, rtol=0)


def test_a_gru_keeps_one_state() -> None:
    cache, layer = Cache(), made(Gru)
    for _ in range(3):
        mask, _, _ = cache.extend(CAUSAL, torch.zeros(2, 4))
        layer(drawn(2, 4, 8), mask=mask, cache=cache.layer((0, "self")))
    assert cache.bytes() == 2 * 8 * 8


def test_identity_gives_its_input_and_nothing_for_padding() -> None:
    layer, x_BTD = made(Identity), drawn(2, 4, 8)
    assert torch.equal(layer(x_BTD, mask=EVERYTHING.sized(4, 4)), x_BTD)
    valid_BS = torch.tensor([[True] * 4, [False, True, True, False]])
    out = layer(x_BTD, mask=Mask(causal=True, valid_BS=valid_BS).sized(4, 4))
    assert torch.equal(out[valid_BS], x_BTD[valid_BS])
    assert not out[~valid_BS].any()
    assert not list(layer.parameters())
    assert torch.equal(in_pieces(layer, x_BTD, [2, 1, 1]), x_BTD)


def test_identity_has_nothing_to_cross_to() -> None:
    with pytest.raises(ValueError, match="Identity was asked for cross"):
        made(Identity)(drawn(1, 2, 8), context_BSD=drawn(1, 3, 8), mask=EVERYTHING.sized(2, 3))
