"""Residual arrangements: the equations, GPT-NeoX's and GPT-J's parallel block, LayerScale, stochastic depth."""

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
from zoo_builtin.residual.parallel import Parallel
from zoo_builtin.residual.post import Post
from zoo_builtin.residual.pre import Pre


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
    assert (Pre.final_norm, Parallel.final_norm, Post.final_norm) == (True, True, False)


@pytest.mark.parametrize("cls", [Pre, Post, Parallel])
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
