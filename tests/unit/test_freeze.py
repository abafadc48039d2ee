"""Parts of a model that stay as they are while the rest learns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from zoo.builder import build_model, build_optimizer, check_buildable
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Description
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.training.gradients import Gradient

SIZES = Description(vocab_size=11, max_length=8)


def recipe_of(*parts: str, **sections: Any) -> Recipe:
    architecture = {"name": "gpt2", "layers": 11, "dim": 8, "heads": 2, "dropout": 0.5}
    return Recipe.from_dict({"architecture": architecture, "training": {"freeze": [*parts]}, **sections}, fragment=True)


def frozen(model: Architecture) -> set[str]:
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


def test_nothing_is_frozen_unless_it_is_named() -> None:
    assert not frozen(build_model(recipe_of(), SIZES))


def test_a_part_is_frozen_with_all_inside_it_and_nothing_beside_it() -> None:
    model = build_model(recipe_of("embedding", "stack.blocks.1", "stack.final_norm.norm.bias"), SIZES)
    names = {name for name, _ in model.named_parameters()}
    inside = {name for name in names if name.startswith(("embedding.", "stack.blocks.1."))}
    assert frozen(model) == inside | {"stack.final_norm.norm.bias"}
    assert not any(name.startswith("stack.blocks.10.") for name in frozen(model))


def test_a_frozen_part_drops_nothing_and_the_others_do() -> None:
    model = build_model(recipe_of("stack.blocks.1"), SIZES)
    modes = {name: module.training for name, module in model.named_modules()}
    assert not any(on for name, on in modes.items() if name.startswith("stack.blocks.1."))
    assert all(on for name, on in modes.items() if not name.startswith("stack.blocks.1"))


def test_a_frozen_model_starts_with_the_values_of_one_that_is_not() -> None:
    one, other = build_model(recipe_of("embedding"), SIZES), build_model(recipe_of(), SIZES)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("optimizer", ["adamw", {"name": "library", "algorithm": "torch.SGD"}])
@pytest.mark.parametrize("decay", [None, 0.5])
def test_only_the_rest_moves_and_the_norm_is_that_of_the_rest(optimizer: Any, decay: float | None) -> None:
    section = {"name": optimizer} if isinstance(optimizer, str) else optimizer
    recipe = recipe_of("embedding", "stack.blocks.0", optimizer={**section, "lr": 1.0, "layer_decay": decay})
    model = build_model(recipe, SIZES)
    still = frozen(model)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    made = build_optimizer(recipe).over(model)
    ids = torch.arange(8)[None]
    model.head(model(ids).hidden).square().mean().backward()
    squares = [parameter.grad.square().sum() for parameter in model.parameters() if parameter.grad is not None]
    torch.testing.assert_close(Gradient(model.parameters()).norm(), torch.stack(squares).sum().sqrt())
    made.step()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) == (name in still), name
        assert (parameter.grad is None) == (name in still), name


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("embeding", "'embeding' is no part of the model that has parameters; did you mean 'embedding' or "),
        ("stack.blocks.11", "'stack.blocks.11' is no part of the model that has parameters; did you mean"),
        ("stack.dropout", "'stack.dropout' is no part of the model that has parameters"),
        ("head", "'head' is no part of the model that has parameters"),  # tied: the table is the embedding's
        ("", "'' is no part of the model that has parameters"),
    ],
)
def test_what_cannot_be_frozen_is_refused_with_near_names_before_any_data_is_read(part: str, message: str) -> None:
    recipe = recipe_of("embedding", part, data="text", task="causal_lm")
    with pytest.raises(UserError) as caught:
        check_buildable(recipe)
    assert caught.value.what.startswith(message)
    assert caught.value.where == "recipe made in Python (training.freeze.1)"


def test_a_model_in_which_nothing_can_learn_is_refused() -> None:
    with pytest.raises(UserError, match=r"training\.freeze leaves no parameter to train"):
        build_model(recipe_of("embedding", "stack"), SIZES)
