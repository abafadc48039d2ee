"""Optimizers: which parameters decay, steps worked out by hand, and what the libraries offer by name."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from timm.optim import Lion
from torch import nn

from zoo.errors import UserError
from zoo.recipe import load_recipe
from zoo_builtin.optimizer.adamw import AdamW
from zoo_builtin.optimizer.library import Library


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def library(algorithm: str, **knobs: Any) -> torch.optim.Optimizer:
    return Library(Library.Config(algorithm=algorithm, **knobs)).make(model().named_parameters())


@pytest.mark.parametrize("kind", [AdamW, Library])
def test_only_matrices_decay_and_frozen_parameters_are_left_out(kind: Any) -> None:
    network = model()
    next(network.parameters()).requires_grad_(False)
    made = kind(kind.Config(weight_decay=0.3)).make(network.named_parameters())
    sizes = [[parameter.ndim for parameter in group["params"]] for group in made.param_groups]
    assert sizes == [[2], [1, 1, 1, 1]]
    assert [group["weight_decay"] for group in made.param_groups] == [0.3, 0.0]


@pytest.mark.parametrize("fused", [True, False])
def test_the_first_step_of_adamw_is_the_learning_rate_and_the_decay(fused: bool) -> None:
    weight = nn.Parameter(torch.tensor([[2.0, -4.0]]))
    made = AdamW(AdamW.Config(lr=0.1, weight_decay=0.5, fused=fused)).make([("weight", weight)])
    weight.grad = torch.tensor([[3.0, -0.001]])
    made.step()
    assert weight.tolist()[0] == pytest.approx([2 - 0.1 * 0.5 * 2 - 0.1, -4 + 0.1 * 0.5 * 4 + 0.1], rel=1e-4)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lr=-1", "lr is -1.0; it must be a finite number of at least 0"),
        ("optimizer.lr=.inf", "lr is inf; it must be"),
        ("optimizer.lr=.nan", "lr is nan; it must be"),
        ("optimizer.weight_decay=-1", "weight_decay is -1.0; it must be"),
        ("optimizer.weight_decay=.inf", "weight_decay is inf; it must be"),
        ("optimizer.betas=[0.9, 1]", "betas are [0.9, 1.0]; each must be from 0 to below 1"),
        ("optimizer.betas=[-0.1, 0.9]", "betas are [-0.1, 0.9]; each must be"),
        ("optimizer.eps=-1e-8", "eps is -1e-08; it must be"),
    ],
)
def test_numbers_that_cannot_train_are_refused_by_the_recipe_with_their_place(override: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe("gpt2_text", [override])
    assert message in caught.value.what
    assert caught.value.where == f"override 1: {override} ({override.partition('=')[0]})"


def test_a_library_optimizer_is_held_to_the_same_limits() -> None:
    with pytest.raises(ValueError, match="weight_decay is -1; it must be"):
        Library.Config(weight_decay=-1)


def test_adamw_is_fused_where_torch_can() -> None:
    made = AdamW(AdamW.Config()).make(model().named_parameters())
    assert made.defaults["fused"] is True
    assert made.defaults["betas"] == (0.9, 0.95)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [("torch.SGD", torch.optim.SGD), ("SGD", torch.optim.SGD), ("timm.lion", Lion), ("lion", Lion)],
)
def test_an_algorithm_is_found_by_its_library_or_by_its_bare_name(algorithm: str, expected: type) -> None:
    assert type(library(algorithm)) is expected


def test_options_reach_the_algorithm_and_lists_become_tuples() -> None:
    made = library("timm.lion", options={"betas": [0.8, 0.9]}, lr=0.2)
    assert (made.defaults["betas"], made.defaults["lr"]) == ((0.8, 0.9), 0.2)
    weight = nn.Parameter(torch.tensor([[1.0]]))
    sgd = Library(Library.Config(lr=0.5, weight_decay=0.0, options={"momentum": 0.9})).make([("weight", weight)])
    for expected in (0.5, -0.45):  # 1 - 0.5 g, then - 0.5 (0.9 g + g)
        weight.grad = torch.ones(1, 1)
        sgd.step()
        assert weight.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    "algorithm", ["torch.AdamW", "torch.Adagrad", "torch.RMSprop", "timm.muon", "lamb", "timm.adan"]
)
def test_usual_algorithms_take_a_step(algorithm: str) -> None:
    network = model()
    before = [parameter.clone() for parameter in network.parameters()]
    made = Library(Library.Config(algorithm=algorithm)).make(network.named_parameters())
    network(torch.ones(5, 3)).square().sum().backward()
    made.step()
    moved = [not torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True)]
    assert any(moved)
    assert all(torch.isfinite(parameter).all() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("torch.Adamw", "did you mean torch.AdamW or timm.adamw"),
        ("torch.lion", "did you mean timm.lion"),
        ("LBFGS", "evaluates the loss several times a step"),
        ("torch.SparseAdam", "sparse gradients"),
        ("os.system", "neither torch nor timm"),
        ("torch.optim.SGD", "did you mean torch.SGD or timm.sgd"),
    ],
)
def test_an_algorithm_that_is_unknown_or_unfit_is_refused(algorithm: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        library(algorithm)
    assert caught.value.where == "optimizer.algorithm"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentun": 0.9}, "torch.SGD has no argument 'momentun'; did you mean momentum?"),
        ({"lr": 0.1}, "lr isn't an option"),
        ({"momentum": -1.0}, "torch.SGD can't be made: Invalid momentum value: -1.0"),
    ],
)
def test_options_that_the_algorithm_refuses_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        library("torch.SGD", options=options)


def test_torchs_muon_says_that_it_takes_matrices_only() -> None:
    with pytest.raises(UserError, match=r"torch\.Muon can't be made: .*2D"):
        library("torch.Muon")
