"""Stretched rotation: frequencies and factors are those of transformers, and a cache agrees with a full pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from zoo.contracts.values.cache import Cache
from zoo.contracts.values.mask import CAUSAL
from zoo.contracts.values.place import Place
from zoo.recipe import load_recipe
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.position.rotary import Rotary, Scaling, lengthened

CPU = torch.device("cpu")
SHORT, LONG = [1.0, 1.1, 1.5, 2.0], [1.0, 2.5, 8.0, 30.0]


def rotary(size: int = 8, *, length: int | None = None, theta: float = 10000.0, **scaling: Any) -> Rotary:
    scheme = Rotary.Config(theta=theta, scaling=Scaling(**scaling) if scaling else None)
    return Rotary(scheme, dim=size, heads=1, size=size, length=length)


def of_transformers(
    rule: str, size: int = 8, *, seq_len: int | None = None, longest: int = 2048, **parameters: Any
) -> tuple[torch.Tensor, float]:
    theirs = LlamaConfig(
        hidden_size=2 * size,
        num_attention_heads=2,
        max_position_embeddings=longest,
        rope_parameters={"rope_type": rule, "rope_theta": 10000.0, **parameters},
    )
    frequencies, factor = ROPE_INIT_FUNCTIONS[rule](theirs, seq_len=seq_len)
    return frequencies.double(), factor


def compare(ours: Rotary, theirs: tuple[torch.Tensor, float]) -> None:
    """Theirs are computed in float32: a few roundings, 1e-6 of each frequency."""
    torch.testing.assert_close(ours.frequencies(CPU), theirs[0], rtol=1e-6, atol=0)
    assert lengthened(ours.config.scaling) == pytest.approx(theirs[1], rel=1e-12)
    at = torch.tensor([[[1]]])
    cos, sin = ours.prepare(at, at)
    torch.testing.assert_close(cos[0, 0, 0], theirs[0].cos() * theirs[1], rtol=0, atol=2e-6)
    torch.testing.assert_close(sin[0, 0, 0], theirs[0].sin() * theirs[1], rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("factor", "low", "high", "length", "theta", "size"),
    [(8.0, 1.0, 4.0, 8192, 500000.0, 128), (32.0, 1.0, 4.0, 8192, 500000.0, 64), (4.0, 2.0, 3.0, 64, 10000.0, 16)],
    ids=["Llama 3.1", "Llama 3.2", "another"],
)
def test_llama3(factor: float, low: float, high: float, length: int, theta: float, size: int) -> None:
    theirs = of_transformers(
        "llama3",
        size,
        rope_theta=theta,
        factor=factor,
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=length,
    )
    bounds = {"low_frequency_factor": low, "high_frequency_factor": high}
    ours = rotary(size, theta=theta, factor=factor, original_length=length, **bounds)
    compare(ours, theirs)
    unscaled = rotary(size, theta=theta).frequencies(CPU)
    assert ours.frequencies(CPU)[0] == unscaled[0]
    assert float(ours.frequencies(CPU)[-1] * factor) == pytest.approx(float(unscaled[-1]))


@pytest.mark.parametrize("size", [8, 64])
def test_linear_is_position_interpolation(size: int) -> None:
    ours = rotary(size, rule="linear", factor=4.0)
    compare(ours, of_transformers("linear", size, factor=4.0))
    far, near = torch.tensor([[[12]]]), torch.tensor([[[3]]])
    torch.testing.assert_close(ours.prepare(far, far), rotary(size).prepare(near, near), rtol=0, atol=1e-15)


@pytest.mark.parametrize("size", [8, 64])
def test_ntk_is_the_dynamic_rule_at_the_length_where_its_factor_is_ours(size: int) -> None:
    """At 4096 of 2048 positions, a dynamic factor of 3 has grown to 3 x 2 - 2 = 4."""
    ours = rotary(size, rule="ntk", factor=4.0)
    compare(ours, of_transformers("dynamic", size, factor=3.0, seq_len=4096))
    unscaled = rotary(size).frequencies(CPU)
    assert ours.frequencies(CPU)[0] == 1.0
    assert float(ours.frequencies(CPU)[-1] * 4) == pytest.approx(float(unscaled[-1]))


@pytest.mark.parametrize(
    ("size", "ours", "theirs"),
    [
        (64, {}, {}),
        (128, {"factor": 40.0, "original_length": 4096}, {"factor": 40.0, "original_max_position_embeddings": 4096}),
        (64, {"fast": 16.0, "slow": 2.0}, {"beta_fast": 16, "beta_slow": 2}),
        (64, {"whole": False}, {"truncate": False}),
        (64, {"lengthened": 1.25}, {"attention_factor": 1.25}),
        (
            64,
            {"lengthened": (0.1 * 0.7 * 2.772588722 + 1) / (0.1 * 2.772588722 + 1)},
            {"mscale": 0.7, "mscale_all_dim": 1},
        ),
        (8, {"original_length": 32}, {"original_max_position_embeddings": 32}),
    ],
    ids=["the defaults", "DeepSeek", "other bounds", "no whole pairs", "a given factor", "two mscales", "short"],
)
def test_yarn(size: int, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    theirs = {"factor": 16.0, "original_max_position_embeddings": 2048} | theirs
    scheme = rotary(size, rule="yarn", **({"factor": 16.0, "original_length": 2048} | ours))
    want = of_transformers("yarn", size, **theirs)
    torch.testing.assert_close(scheme.frequencies(CPU), want[0], rtol=1e-6, atol=0)
    assert lengthened(scheme.config.scaling) == pytest.approx(want[1], rel=1e-8)
    at = torch.tensor([[[1]]])
    cos, _ = scheme.prepare(at, at)
    torch.testing.assert_close(cos[0, 0, 0], want[0].cos() * want[1], rtol=0, atol=2e-6)


@pytest.mark.parametrize(("length", "seq_len"), [(64, 64), (65, 65), (None, 65)])
def test_longrope_has_two_lists_of_factors(length: int | None, seq_len: int) -> None:
    ours = rotary(length=length, rule="longrope", factor=4.0, original_length=64, short=[*SHORT], long=[*LONG])
    parameters = {"short_factor": SHORT, "long_factor": LONG, "original_max_position_embeddings": 64}
    compare(ours, of_transformers("longrope", seq_len=seq_len, longest=256, **parameters))
    assert lengthened(ours.config.scaling) == pytest.approx((1 + 1 / 3) ** 0.5)  # log 4 / log 64


def test_scores_are_longer_by_the_square_of_the_factor() -> None:
    yarn = rotary(rule="yarn", factor=16.0, original_length=64, lengthened=1.5)
    plain = rotary(rule="yarn", factor=16.0, original_length=64, lengthened=1.0)
    at, (q, k) = torch.arange(5)[None, :, None], torch.randn(2, 1, 1, 5, 8, dtype=torch.float64)
    scores = [
        place.rotate(q) @ place.rotate_keys(k).transpose(-1, -2)
        for place in (Place(scheme, at, at) for scheme in (yarn, plain))
    ]
    torch.testing.assert_close(scores[0], 2.25 * scores[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", ["linear", "ntk", "llama3", "yarn", "longrope"])
def test_a_cache_goes_past_the_original_length_as_a_full_pass_does(rule: str) -> None:
    """Keys were turned when the input was short; the angles must be the same ones later."""
    factors = {"short": [*SHORT], "long": [*LONG]} if rule == "longrope" else {}
    scheme = rotary(length=12, rule=rule, factor=3.0, original_length=4, **factors)
    torch.manual_seed(0)
    layer = MultiHead.part()(dim=8, heads=1).double()
    x_BTD, cache, outs = torch.randn(1, 12, 8, dtype=torch.float64), Cache(), []
    mask, at_BTA, keys_BSA = Cache().extend(CAUSAL, x_BTD)
    want = layer(x_BTD, mask=mask, place=Place(scheme, at_BTA, keys_BSA))
    for piece_BTD in x_BTD.split([3, 1, 1, 7], 1):
        mask, at_BTA, keys_BSA = cache.extend(CAUSAL, piece_BTD)
        place = Place(scheme, at_BTA, keys_BSA)
        outs.append(layer(piece_BTD, mask=mask, place=place, cache=cache.layer((0, "self"))))
    torch.testing.assert_close(torch.cat(outs, 1), want, rtol=0, atol=1e-12)


def test_scaling_in_a_recipe_is_a_group_of_knobs() -> None:
    recipe = load_recipe("preset/gpt2", ["architecture.position={name: rotary, scaling: {factor: 32.0}}"])
    assert recipe.config("architecture.position").scaling == Scaling(factor=32.0, original_length=8192)
    assert load_recipe("preset/gpt2", ["architecture.position=rotary"]).config("architecture.position").scaling is None
    text = "architecture.position={name: rotary, scaling: {rule: longrope, short: [1.0, 2.0], long: [1, 4]}}"
    scaling = load_recipe("preset/gpt2", [text]).config("architecture.position").scaling
    assert (scaling.rule, list(scaling.short), list(scaling.long)) == ("longrope", [1.0, 2.0], [1.0, 4.0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"factor": 0.5}, "rotary scaling needs a factor of at least 1, got 0.5"),
        ({"low_frequency_factor": 4.0}, "needs a low_frequency_factor between 0 and high_frequency_factor, got 4.0"),
        ({"rule": "yarn", "slow": 40.0}, "yarn needs slow between 0 and fast, got 40.0 and 32.0"),
        ({"rule": "longrope", "long": [1.0]}, r"needs 4 factors in short and as many in long, got \[None, 1\]"),
        ({"rule": "yarn", "original_length": 1}, "original_length of at least 2, got 1"),
    ],
)
def test_scaling_that_can_not_be_is_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rotary(8, **wrong)
    with pytest.raises(ValueError, match="ntk needs at least 4 rotated elements, got 2"):
        rotary(2, rule="ntk")
