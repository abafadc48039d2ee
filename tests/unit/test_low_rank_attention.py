"""Linformer and Nystrom attention: their equations, a published implementation, padding, what they refuse."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.contracts.values.mask import EVERYTHING, Mask
from zoo.initialization import initialize
from zoo_builtin.attention.linformer import Linformer
from zoo_builtin.attention.nystrom import Nystrom


def made(cls: Any, dim: int = 16, heads: int = 4, length: int | None = 12, **knobs: Any) -> Any:
    layer = cls(cls.Config(**knobs), dim=dim, heads=heads, length=length)
    initialize(layer, 0, std=0.4, branch_std=0.4)
    return layer.double()


def split(layer: Any, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    size = layer.score_size
    return tuple(  # type: ignore[return-value]
        project(x_BTD).unflatten(-1, (-1, size)).transpose(1, 2) for project in (layer.query, layer.key, layer.value)
    )


def merged(layer: Any, out_BNTV: Tensor) -> Tensor:
    return layer.output(out_BNTV.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("share", ["heads", "keys_values", "none"])
@pytest.mark.parametrize("tokens", [1, 7, 12])
def test_linformer_is_its_equation(share: str, tokens: int) -> None:
    layer = made(Linformer, rank=5, share=share)
    x_BTD = torch.randn(1, tokens, 16, dtype=torch.float64)
    q, k, v = split(layer, x_BTD)
    heads = []
    for head in range(4):
        row = head if share == "none" else 0
        e_RS = layer.key_slots[row, :, :tokens]
        f_RS = e_RS if share == "keys_values" else layer.value_slots[row, :, :tokens]
        scores_TR = q[0, head] @ (e_RS @ k[0, head]).T / 4**0.5
        heads.append(scores_TR.softmax(-1) @ (f_RS @ v[0, head]))
    want = merged(layer, torch.stack(heads)[None])
    torch.testing.assert_close(layer(x_BTD, mask=EVERYTHING.sized(tokens, tokens)), want, atol=1e-12, rtol=0)


def test_a_linformer_whose_slots_are_the_tokens_is_softmax_attention() -> None:
    layer = made(Linformer, rank=12)
    for table in (layer.key_slots, layer.value_slots):
        table.data.copy_(torch.eye(12)[None])
    x_BTD = torch.randn(2, 12, 16, dtype=torch.float64)
    want = merged(layer, F.scaled_dot_product_attention(*split(layer, x_BTD)))
    torch.testing.assert_close(layer(x_BTD, mask=EVERYTHING.sized(12, 12)), want, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("share", "numbers"), [("heads", 2), ("keys_values", 1), ("none", 8)])
def test_sharing_saves_columns(share: str, numbers: int) -> None:
    layer = made(Linformer, rank=5, share=share)
    own = sum(p.numel() for name, p in layer.named_parameters() if "slots" in name)
    assert own == numbers * 5 * 12


def test_padding_in_the_middle_is_skipped() -> None:
    """Columns of E belong to tokens, not to slots, wherever the padding lies."""
    layer, valid_BS = made(Linformer, rank=5), torch.tensor([[False, True, False, True, True, False]])
    x_BTD = torch.randn(1, 6, 16, dtype=torch.float64)
    out = layer(x_BTD, mask=Mask(valid_BS=valid_BS).sized(6, 6))[0, valid_BS[0]]
    alone = layer(x_BTD[:, valid_BS[0]], mask=EVERYTHING.sized(3, 3))[0]
    torch.testing.assert_close(out, alone, atol=1e-12, rtol=0)


def test_linformer_drops_weights_in_training() -> None:
    layer = Linformer.part(rank=64)(dim=16, heads=4, length=12, dropout=0.5).double()
    initialize(layer, 0, std=0.4, branch_std=0.4)
    x_BTD, mask = torch.randn(1, 12, 16, dtype=torch.float64), EVERYTHING.sized(12, 12)
    torch.manual_seed(0)
    outs = torch.stack([layer(x_BTD, mask=mask).detach() for _ in range(400)])
    assert float(outs.std(0).min()) > 0
    error = (outs.mean(0) - layer.eval()(x_BTD, mask=mask).detach()) / (outs.std(0) / 20)
    assert float(error.abs().max()) < 5


def test_what_a_linformer_can_not_be() -> None:
    with pytest.raises(ValueError, match="linformer needs to know the most tokens there can be"):
        made(Linformer, length=None)
    with pytest.raises(ValueError, match="rank must be at least 1, got 0"):
        made(Linformer, rank=0)
    with pytest.raises(ValueError, match="13 tokens, linformer was made for 12"):
        made(Linformer)(torch.zeros(1, 13, 16).double(), mask=EVERYTHING.sized(13, 13))
    with pytest.raises(ValueError, match="asked for causal; it offers bidirectional, padding, rotate"):
        made(Linformer)(torch.zeros(1, 3, 16).double(), mask=Mask(causal=True).sized(3, 3))


def published(layer: Nystrom, tokens: int, *, start: str) -> Any:
    """transformers' layer with the same weights."""
    modeling = pytest.importorskip("transformers.models.nystromformer.modeling_nystromformer")
    config = types.SimpleNamespace(
        hidden_size=layer.dim,
        num_attention_heads=layer.heads,
        num_landmarks=layer.config.landmarks,
        segment_means_seq_len=tokens,
        conv_kernel_size=layer.config.convolution,
        inv_coeff_init_option=None,
        attention_probs_dropout_prob=0.0,
    )
    other = modeling.NystromformerSelfAttention(config).double()
    other.init_option = start  # its own switch reads the wrong key
    state = {
        f"{name}.{part}": getattr(getattr(layer, name), part)
        for name in ("query", "key", "value")
        for part in ("weight", "bias")
    }
    if layer.config.convolution is not None:
        state["conv.weight"] = layer.convolution
    other.load_state_dict(state)
    return other


@pytest.mark.parametrize("convolution", [None, 5])
@pytest.mark.parametrize(("tokens", "landmarks"), [(12, 4), (12, 6), (12, 12), (8, 1)])
def test_nystrom_is_the_published_layer(tokens: int, landmarks: int, convolution: int | None) -> None:
    layer = made(Nystrom, landmarks=landmarks, convolution=convolution)
    x_BTD = torch.randn(2, tokens, 16, dtype=torch.float64).requires_grad_()
    (want,) = published(layer, tokens, start="exact")(x_BTD)
    got = layer(x_BTD, mask=EVERYTHING.sized(tokens, tokens))
    torch.testing.assert_close(got, layer.output(want), atol=1e-12, rtol=0)
    (of_got,) = torch.autograd.grad(got.square().sum(), x_BTD)
    (of_want,) = torch.autograd.grad(layer.output(want).square().sum(), x_BTD)
    torch.testing.assert_close(of_got, of_want, atol=1e-11, rtol=1e-11)


def test_for_one_row_and_one_head_it_is_also_what_their_code_starts_from() -> None:
    layer = made(Nystrom, heads=1, landmarks=4)
    x_BTD = torch.randn(1, 12, 16, dtype=torch.float64)
    (want,) = published(layer, 12, start="original")(x_BTD)
    got = layer(x_BTD, mask=EVERYTHING.sized(12, 12))
    torch.testing.assert_close(got, layer.output(want), atol=1e-12, rtol=0)


@pytest.mark.parametrize("landmarks", [7, 64])
def test_with_a_landmark_for_each_token_it_is_softmax_attention(landmarks: int) -> None:
    layer = made(Nystrom, landmarks=landmarks, convolution=None)
    x_BTD = torch.randn(2, 7, 16, dtype=torch.float64)
    want = merged(layer, F.scaled_dot_product_attention(*split(layer, x_BTD)))
    torch.testing.assert_close(layer(x_BTD, mask=EVERYTHING.sized(7, 7)), want, atol=1e-12, rtol=0)


def test_segments_that_do_not_divide_and_padding() -> None:
    """Seven tokens in three segments are 3, 2 and 2; the two padded rows have five tokens, and two."""
    layer = made(Nystrom, landmarks=3, convolution=3, iterations=40)
    x_BTD = torch.randn(3, 7, 16, dtype=torch.float64)
    valid_BS = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1]]).bool()
    out = layer(x_BTD, mask=Mask(valid_BS=valid_BS).sized(7, 7))
    cuts = {7: [3, 2, 2], 5: [2, 2, 1]}
    for row in (0, 1):
        tokens = x_BTD[row : row + 1, valid_BS[row]]
        q, k, v = split(layer, tokens)
        cut = cuts[tokens.shape[1]]
        q_means, k_means = (torch.stack([part.mean(2) for part in x.split(cut, 2)], 2) for x in (q, k))
        near, middle, far = ((a @ b.mT / 2).softmax(-1) for a, b in ((q, k_means), (q_means, k_means), (q_means, k)))
        want = near @ torch.linalg.pinv(middle) @ far @ v
        spaced = torch.zeros(1, 4, 7, 4, dtype=torch.float64)
        spaced[:, :, valid_BS[row]] = v
        convolved = F.conv2d(spaced, layer.convolution, padding=(1, 0), groups=4)[:, :, valid_BS[row]]
        torch.testing.assert_close(
            out[row : row + 1, valid_BS[row]], merged(layer, want + convolved), atol=1e-9, rtol=0
        )
    alone = layer(x_BTD[2:, 5:], mask=EVERYTHING.sized(2, 2))
    torch.testing.assert_close(out[2:, 5:], alone, atol=1e-12, rtol=0)


def test_the_iteration_approaches_the_pseudo_inverse() -> None:
    matrix = torch.randn(2, 3, 5, 5, dtype=torch.float64).softmax(-1)
    want = torch.linalg.pinv(matrix)
    errors = [
        float((made(Nystrom, iterations=steps)._inverse(matrix) - want).norm() / want.norm()) for steps in (2, 6, 20)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-9


def test_more_landmarks_come_closer_to_softmax_attention() -> None:
    x_BTD = torch.randn(1, 64, 16, dtype=torch.float64).cumsum(1) / 8
    errors = []
    for landmarks in (2, 8, 32, 64):
        layer = made(Nystrom, length=64, landmarks=landmarks, convolution=None, iterations=20)
        want = merged(layer, F.scaled_dot_product_attention(*split(layer, x_BTD)))
        error = layer(x_BTD, mask=EVERYTHING.sized(64, 64)) - want
        errors.append(float((error.norm() / want.norm()).detach()))
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < 1e-12


def test_what_nystrom_attention_can_not_be() -> None:
    with pytest.raises(ValueError, match="landmarks and iterations must be at least 1, got 0 and 6"):
        made(Nystrom, landmarks=0)
    with pytest.raises(ValueError, match="convolution must reach an odd number of tokens, got 4"):
        made(Nystrom, convolution=4)
    with pytest.raises(ValueError, match="asked for causal; it offers bidirectional, padding, rotate"):
        made(Nystrom)(torch.zeros(1, 3, 16).double(), mask=Mask(causal=True).sized(3, 3))
