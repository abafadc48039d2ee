"""Gated delta net and Mamba-2 are those of transformers, with the same weights, step by step too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zoo.contracts.attention import Attention
from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import CAUSAL, Mask
from zoo.initialization import initialize
from zoo.nn.recurrence import recur
from zoo_builtin.attention.gated_delta_net import GatedDeltaNet
from zoo_builtin.attention.mamba2 import Mamba2

pytest.importorskip("transformers")

from transformers import DynamicCache, Mamba2Config, Qwen3NextConfig
from transformers.models.kimi_linear import modeling_kimi_linear
from transformers.models.mamba2 import modeling_mamba2
from transformers.models.qwen3_next import modeling_qwen3_next

TOLERANCE = 1e-11
"""float64: sums over 100 tokens in another order; norms enlarge what is small."""

MODULES = (modeling_kimi_linear, modeling_mamba2, modeling_qwen3_next)


class Wide:
    """What their code calls torch, with float64 where it says float32."""

    float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@pytest.fixture(autouse=True)
def in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Their code narrows to float32 by name and by method, which would hide all errors below 1e-5."""
    for module in MODULES:
        monkeypatch.setattr(module, "torch", Wide())
    monkeypatch.setattr(Tensor, "float", Tensor.double)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(default)


def scattered(other: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return other.eval()


def qwen3_next(key_heads: int, value_heads: int) -> tuple[Attention, nn.Module, Any]:
    """Theirs, and ours with its weights: theirs holds each head of keys together with what belongs to it."""
    config = Qwen3NextConfig(
        hidden_size=16,
        linear_num_key_heads=key_heads,
        linear_num_value_heads=value_heads,
        linear_key_head_dim=4,
        linear_value_head_dim=6,
        num_hidden_layers=1,
    )
    theirs = scattered(modeling_qwen3_next.Qwen3NextGatedDeltaNet(config, 0))
    ours = GatedDeltaNet(
        GatedDeltaNet.Config(size=4, value_size=6, key_heads=key_heads), dim=16, heads=value_heads
    ).eval()
    shared = value_heads // key_heads
    by_head = theirs.in_proj_qkvz.weight.unflatten(0, (key_heads, -1)).split([4, 4, 6 * shared, 6 * shared], 1)
    beta, step = theirs.in_proj_ba.weight.unflatten(0, (key_heads, -1)).chunk(2, 1)
    convolutions = theirs.conv1d.weight[:, 0].split([4 * key_heads, 4 * key_heads, 6 * value_heads])
    names = ("query.weight", "key.weight", "value.weight", "gate.weight", "beta.weight", "step.weight")
    state = {name: x.flatten(0, 1) for name, x in zip(names, (*by_head, beta, step), strict=True)}
    names = ("query_convolution.weight", "key_convolution.weight", "value_convolution.weight")
    state |= dict(zip(names, convolutions, strict=True))
    state |= {"log_rate": theirs.A_log, "step_bias": theirs.dt_bias}
    state |= {"norm.weight": theirs.norm.weight, "output.weight": theirs.out_proj.weight}
    ours.load_state_dict(state)
    return ours, theirs, config


def mamba2(groups: int, bias: bool) -> tuple[Attention, nn.Module, Any]:
    config = Mamba2Config(
        hidden_size=16,
        num_heads=4,
        head_dim=8,
        state_size=5,
        n_groups=groups,
        chunk_size=16,
        use_bias=bias,
        use_conv_bias=bias,
        num_hidden_layers=1,
    )
    theirs = scattered(modeling_mamba2.Mamba2Mixer(config, 0))
    knobs = {"state_size": 5, "groups": groups, "bias": bias, "convolution_bias": bias}
    ours = Mamba2(Mamba2.Config(**knobs), dim=16, heads=4).eval()
    state = {"log_rate": theirs.A_log, "step_bias": theirs.dt_bias, "skip": theirs.D, "norm": theirs.norm.weight}
    state["convolution.weight"] = theirs.conv1d.weight[:, 0]
    state["output.weight"] = theirs.out_proj.weight
    sizes = [32, 32 + 2 * groups * 5, 4]
    for kind in ("weight", "bias") if bias else ("weight",):
        pieces = getattr(theirs.in_proj, kind).split(sizes)
        state |= {f"{name}.{kind}": x for name, x in zip(("gate", "mixed", "step"), pieces, strict=True)}
    if bias:
        state |= {"convolution.bias": theirs.conv1d.bias, "output.bias": theirs.out_proj.bias}
    ours.load_state_dict(state)
    return ours, theirs, config


PAIRS = pytest.mark.parametrize(
    "pair",
    [
        pytest.param(lambda: qwen3_next(2, 2), id="qwen3_next"),
        pytest.param(lambda: qwen3_next(2, 4), id="qwen3_next, shared keys"),
        pytest.param(lambda: mamba2(1, False), id="mamba2"),
        pytest.param(lambda: mamba2(1, True), id="mamba2, biases"),
        pytest.param(lambda: mamba2(2, False), id="mamba2, 2 groups"),
    ],
)
Pair = Callable[[], tuple[Attention, nn.Module, Any]]


def close(got: Tensor, want: Tensor, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(got, want, atol=tolerance, rtol=tolerance)


def ours_over(attention: Attention, x_BTD: Tensor, mask: Mask = CAUSAL, cache: Cache | None = None) -> Tensor:
    mask, _, _ = (Cache() if cache is None else cache).extend(mask, x_BTD[..., 0])
    return attention(x_BTD, mask=mask, cache=None if cache is None else cache.layer((0, "self")))


@PAIRS
@pytest.mark.parametrize("tokens", [1, 5, 100])
def test_outputs_and_gradients(pair: Pair, tokens: int) -> None:
    ours, theirs, _ = pair()
    x_BTD = torch.randn(2, tokens, 16)
    results = []
    for run in (lambda x: ours_over(ours, x), lambda x: theirs(x)):
        leaf_BTD = x_BTD.clone().requires_grad_()
        out_BTD = run(leaf_BTD)
        slopes = torch.linspace(-1, 1, out_BTD.numel()).reshape(out_BTD.shape) / tokens
        results.append((out_BTD, torch.autograd.grad((out_BTD * slopes).sum(), leaf_BTD)[0]))
    (got, got_gradient), (want, want_gradient) = results
    close(got, want)
    close(got_gradient, want_gradient)


@pytest.mark.parametrize("pair", [lambda: qwen3_next(2, 4), lambda: mamba2(2, False)], ids=["qwen3_next", "mamba2"])
def test_left_padded_batches(pair: Pair) -> None:
    """Not with biases in Mamba-2's projections: theirs then reach the convolution from padded tokens too."""
    ours, theirs, _ = pair()
    x_BTD, valid_BS = torch.randn(2, 9, 16), torch.arange(9) >= torch.tensor([[0], [4]])
    got, want = ours_over(ours, x_BTD, Mask(causal=True, valid_BS=valid_BS)), theirs(x_BTD, attention_mask=valid_BS)
    close(got[valid_BS], want[valid_BS])


@PAIRS
@torch.no_grad()
def test_a_prompt_and_single_tokens_through_both_caches(pair: Pair) -> None:
    ours, theirs, config = pair()
    x_BTD, cache, their_cache = torch.randn(2, 12, 16), Cache(), DynamicCache(config=config)
    for piece_BTD in x_BTD.split([7, 1, 1, 1, 1, 1], 1):
        close(ours_over(ours, piece_BTD, CAUSAL, cache), theirs(piece_BTD, cache=their_cache))


@pytest.mark.parametrize("tokens", [1, 7, 130])
def test_a_delta_rule_with_a_decay_of_each_element_is_kimis(tokens: int) -> None:
    """Their single steps; the one reference here for decays of elements, which RWKV-7 has as well."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, tokens, 3, size) for size in (8, 8, 6))
    beta, decay = torch.rand(2, tokens, 3), -torch.rand(2, tokens, 3, 8)
    steps = modeling_kimi_linear.recurrent_kimi_delta_attention
    options: dict[str, Any] = {"initial_state": None, "output_final_state": False, "use_qk_l2norm_in_kernel": True}
    want, _ = steps(q, k, v, g=decay, beta=beta, **options)
    unit_q, unit_k = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
    got = recur(
        (unit_q * 8**-0.5).transpose(1, 2),
        (unit_k * beta[..., None]).transpose(1, 2),
        v.transpose(1, 2),
        decay_BNTX=decay.transpose(1, 2),
        read_BNTH=(unit_k * decay.exp()).transpose(1, 2),
    )
    close(got.transpose(1, 2), want)


def test_new_layers_begin_in_the_published_ranges() -> None:
    for layer in (made(Mamba2), made(GatedDeltaNet)):
        assert 1 <= layer.log_rate.exp().min() < 4 and 13 < layer.log_rate.exp().max() <= 16
        step = nn.functional.softplus(layer.step_bias)
        assert 0.001 <= step.min() < 0.002 and 0.05 < step.max() <= 0.1


def made(mixer: type[Attention]) -> Any:
    layer = mixer(mixer.Config(), dim=64, heads=64)  # type: ignore[attr-defined]
    initialize(layer, 0, std=0.02, branch_std=0.02)
    return layer
