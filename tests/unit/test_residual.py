"""Residual arrangements: the equations, published blocks, initial values, LayerScale, stochastic depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zoo.contracts.residual import Branch, Residual
from zoo.initialization import generator_for, initialize
from zoo.testing.check import check
from zoo.testing.templates.residual import Mine
from zoo_builtin.norm.layer_norm import LayerNorm
from zoo_builtin.norm.none import NoNorm
from zoo_builtin.residual.deep_norm import DeepNorm
from zoo_builtin.residual.parallel import Parallel
from zoo_builtin.residual.post import Post
from zoo_builtin.residual.pre import Pre
from zoo_builtin.residual.rezero import ReZero
from zoo_builtin.residual.sandwich import Sandwich


def made(cls: type[Residual], *, branches: int = 2, layer: int = 0, layers: int = 1, **knobs: Any) -> Residual:
    parent = {"dim": 8, "norm": LayerNorm.part(), "branches": branches, "layer": layer, "layers": layers}
    module = cls(cls.Config(**knobs), **parent)
    initialize(module, 0, std=0.3, branch_std=0.3)
    for name, parameter in module.norms.named_parameters():  # norms that differ, so that they can't be exchanged
        nn.init.normal_(parameter, generator=generator_for(0, name))
    return module.double()


def branches(count: int = 2) -> list[nn.Linear]:
    torch.manual_seed(3)
    return [nn.Linear(8, 8).double() for _ in range(count)]


X_BTD = torch.randn(3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_parallel_branches_all_read_the_same_stream(count: int) -> None:
    module, layers = made(Parallel, branches=count), branches(count)
    want = X_BTD + sum(layer(norm(X_BTD)) for layer, norm in zip(layers, module.norms, strict=True))
    torch.testing.assert_close(module(X_BTD, layers), want, atol=1e-12, rtol=0)


@pytest.mark.parametrize("count", [2, 3])
def test_parallel_branches_can_share_a_norm(count: int) -> None:
    module, layers = made(Parallel, branches=count, shared_norm=True), branches(count)
    assert len(module.norms) == 1
    normed = module.norms[0](X_BTD)
    torch.testing.assert_close(
        module(X_BTD, layers), X_BTD + sum(layer(normed) for layer in layers), atol=1e-12, rtol=0
    )
    with pytest.raises(ValueError, match="shorter"):
        module(X_BTD, layers[1:])


def test_the_stack_ends_with_a_norm_unless_the_arrangement_is_post() -> None:
    assert (Pre.final_norm, Parallel.final_norm, Sandwich.final_norm) == (True, True, True)
    assert (Post.final_norm, DeepNorm.final_norm, ReZero.final_norm) == (False, False, False)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_sandwich_has_a_norm_on_both_sides_of_a_branch(count: int) -> None:
    module, layers = made(Sandwich, branches=count), branches(count)
    want_BTD = X_BTD
    for index, layer in enumerate(layers):
        want_BTD = want_BTD + module.norms[2 * index + 1](layer(module.norms[2 * index](want_BTD)))
    torch.testing.assert_close(module(X_BTD, layers), want_BTD, atol=1e-12, rtol=0)
    assert len(module.norms) == 2 * count


def test_the_block_of_gemma_2_is_a_sandwich() -> None:
    gemma = pytest.importorskip("transformers.models.gemma2.modeling_gemma2")
    config = gemma.Gemma2Config(
        hidden_size=8, intermediate_size=12, num_attention_heads=2, num_key_value_heads=1, head_dim=4
    )
    config._attn_implementation = "eager"
    other = gemma.Gemma2DecoderLayer(config, 0).double().eval()
    for name, parameter in other.named_parameters():
        nn.init.normal_(parameter, 0, 0.5, generator=generator_for(0, name))
    sides = ("input", "post_attention", "pre_feedforward", "post_feedforward")
    norms = iter([getattr(other, f"{side}_layernorm") for side in sides])
    module = Sandwich(Sandwich.Config(), dim=8, norm=lambda dim: next(norms), branches=2)
    angles = torch.zeros(1, 5, 4, dtype=torch.float64)
    where = {"position_embeddings": (angles.cos(), angles.sin()), "attention_mask": None}
    got_BTD = module(X_BTD, [lambda x: other.self_attn(x, **where)[0], other.mlp])
    assert torch.equal(got_BTD, other(X_BTD, **where))


@pytest.mark.parametrize("count", [2, 3])
def test_rezero_begins_as_the_identity_and_has_one_number_for_a_block(count: int) -> None:
    module, layers = made(ReZero, branches=count), branches(count)
    assert torch.equal(module(X_BTD, layers), X_BTD)
    assert {name: tuple(value.shape) for name, value in module.named_parameters()} == {"alpha": (1,)}
    with torch.no_grad():
        module.alpha.fill_(0.3)
    want_BTD = X_BTD
    for layer in layers:
        want_BTD = want_BTD + 0.3 * layer(want_BTD)
    torch.testing.assert_close(module(X_BTD, layers), want_BTD, atol=1e-7, rtol=0)  # 0.3 is a float32 number here


def test_pre_norm_without_norms_is_a_plain_residual_network() -> None:
    module, (first, second) = Pre(Pre.Config(), dim=8, norm=NoNorm.part(), branches=2), branches()
    middle_BTD = X_BTD + first(X_BTD)
    torch.testing.assert_close(module(X_BTD, [first, second]), middle_BTD + second(middle_BTD), atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("parent", "knobs", "alpha", "beta"),
    [
        ({"layers": 18}, {}, 36**0.25, 144**-0.25),
        ({"layers": 1}, {}, 2**0.25, 8**-0.25),
        ({"layers": 6}, {"decoder_layers": 6}, 0.81 * 6 ** (5 / 16), 0.87 * 6 ** (-5 / 16)),
        ({"layers": 12}, {"decoder_layers": 3}, 0.81 * (12**4 * 3) ** 0.0625, 0.87 * (12**4 * 3) ** -0.0625),
        ({"layers": 6, "branches": 3}, {}, 18**0.25, 72**-0.25),
        ({"layers": 6, "branches": 3}, {"decoder_layers": 6}, 18**0.25, 72**-0.25),
    ],
)
def test_deep_norm_has_the_published_constants(
    parent: dict[str, int], knobs: dict[str, int], alpha: float, beta: float
) -> None:
    module = made(DeepNorm, **parent, **knobs)
    assert (module.alpha, module.beta) == (pytest.approx(alpha), pytest.approx(beta))
    layers = branches(parent.get("branches", 2))
    want_BTD = X_BTD
    for norm, layer in zip(module.norms, layers, strict=True):
        want_BTD = norm(alpha * want_BTD + layer(want_BTD))
    torch.testing.assert_close(module(X_BTD, layers), want_BTD, atol=1e-12, rtol=0)


def test_a_decoder_of_another_depth_than_its_encoder_was_told_is_refused() -> None:
    with pytest.raises(ValueError, match="decoder_layers is 4, the decoder has 6 layers"):
        made(DeepNorm, branches=3, layers=6, decoder_layers=4)


@pytest.mark.parametrize("cls", [Pre, Post, Parallel, Sandwich, ReZero, DeepNorm])
def test_layer_scale_is_a_vector_for_each_branch(cls: type[Residual]) -> None:
    module, plain, layers = made(cls, layer_scale=1e-5), made(cls), branches()
    scales = {name: value for name, value in module.state_dict().items() if name.startswith("scales")}
    assert {name: value.tolist() for name, value in scales.items()} == {
        "scales.0.weight": pytest.approx([1e-5] * 8),
        "scales.1.weight": pytest.approx([1e-5] * 8),
    }
    assert not [name for name in plain.state_dict() if name.startswith("scales")]
    factors = torch.randn(2, 8, dtype=torch.float64)
    with torch.no_grad():
        for scale, factor in zip(module.scales, factors, strict=True):
            scale.weight.copy_(factor)
    if cls is ReZero:
        nn.init.constant_(module.alpha, 0.5), nn.init.constant_(plain.alpha, 0.5)
    if cls is Sandwich:  # behind the second norm, which would undo it
        for norm, factor in zip(plain.norms[1::2], factors, strict=True):
            norm.norm.weight.data.mul_(factor), norm.norm.bias.data.mul_(factor)
        torch.testing.assert_close(module(X_BTD, layers), plain(X_BTD, layers), atol=1e-12, rtol=0)
        return
    scaled = [lambda x, layer=layer, f=f: f * layer(x) for layer, f in zip(layers, factors, strict=True)]
    torch.testing.assert_close(module(X_BTD, layers), plain(X_BTD, scaled), atol=1e-12, rtol=0)


def test_the_rate_of_stochastic_depth_grows_linearly() -> None:
    rates = [made(Pre, layer=layer, layers=12, drop_path=0.1).drop_path for layer in range(12)]
    assert rates == pytest.approx([0.1 * layer / 11 for layer in range(12)])
    assert made(Pre, layer=0, layers=1, drop_path=0.1).drop_path == 0


def test_rows_keep_a_branch_as_often_as_asked_and_in_the_mean_nothing_changes() -> None:
    module = made(Pre, branches=1, layer=1, layers=2, drop_path=0.3).train()
    torch.manual_seed(0)
    ones = torch.ones(20000, 2, 8, dtype=torch.float64)
    out_BTD = module(torch.zeros_like(ones), [torch.ones_like])
    assert out_BTD.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert torch.equal(out_BTD, out_BTD[:, :1, :1].expand_as(out_BTD))
    # 20,000 draws: the share kept has a deviation of 0.0032
    assert float((out_BTD[:, 0, 0] > 0).double().mean()) == pytest.approx(0.7, abs=0.013)


def test_a_drop_path_that_drops_everything_is_refused() -> None:
    for rate in (-0.1, 1.0):
        with pytest.raises(ValueError, match="drop_path must be at least 0 and below 1, got"):
            made(Pre, drop_path=rate)


class OnlyDropout(Residual):
    """An arrangement that ignores two of its knobs."""

    final_norm = True

    def forward(self, x_BTD: Tensor, branches: Sequence[Branch]) -> Tensor:
        for norm, branch in zip(self.norms, branches, strict=True):
            x_BTD = x_BTD + self.dropout(branch(norm(x_BTD)))
        return x_BTD


class DropsElements(Mine):
    """Stochastic depth by element, which is dropout."""

    def contribution(self, index: int, out_BTD: Tensor) -> Tensor:
        dropped = nn.functional.dropout(out_BTD, self.drop_path, self.training)
        return dropped if self.scales is None else self.scales[index](dropped)


@pytest.mark.parametrize(
    ("cls", "failing"),
    [
        (OnlyDropout, {"layer_scale acts on every branch", "drop_path drops a branch of whole rows"}),
        (DropsElements, {"drop_path drops a branch of whole rows", "dropout acts on branches in training"}),
    ],
)
def test_the_kit_finds_knobs_that_an_arrangement_ignores(cls: type[Residual], failing: set[str]) -> None:
    assert {finding.name for finding in check(cls).checks if finding.status == "failed"} == failing
