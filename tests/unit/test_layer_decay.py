"""Learning rates that fall with the distance from the head."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from timm.optim import param_groups_layer_decay

from zoo.builder import build_model
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Description
from zoo.errors import UserError
from zoo.recipe import Recipe, load_recipe
from zoo.registry import Registry
from zoo_builtin.optimizer.adamw import AdamW
from zoo_builtin.optimizer.library import Library

TEXT = Description(vocab_size=11, max_length=8, classes=3)


def model_of(name: str, sizes: Description = TEXT, **settings: Any) -> Architecture:
    architecture = {"name": name, "layers": 3, "dim": 8, "heads": 2, **settings}
    return build_model(Recipe.from_dict({"architecture": architecture}, fragment=True), sizes)


def rates(model: Architecture, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Learning rate of each parameter by name."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)]: group["lr"] for group in optimizer.param_groups for parameter in group["params"]}


@pytest.mark.parametrize("kind", [AdamW, Library])
def test_rates_fall_from_the_head_to_the_embedding(kind: Any) -> None:
    model = model_of("bert", head={"name": "classification", "pooler": True}, residual="pre")
    found = rates(model, kind(kind.Config(lr=0.8, layer_decay=0.5)).over(model))
    assert found.keys() == {name for name, _ in model.named_parameters()}
    for name, rate in found.items():
        behind = name.startswith(("head.", "stack.final_norm."))
        depth = 4 if behind else int(name.split(".")[2]) + 1 if name.startswith("stack.blocks.") else 0
        assert rate == pytest.approx(0.8 * 0.5 ** (4 - depth)), name
    assert {found[name] for name in ("embedding.tokens.weight", "stack.positions.0.table.weight")} == {0.05}


@pytest.mark.parametrize("kind", [AdamW, Library])
def test_null_and_one_are_one_rate_for_all(kind: Any) -> None:
    model = model_of("gpt2")
    for decay in (None, 1.0):
        assert set(rates(model, kind(kind.Config(lr=0.8, layer_decay=decay)).over(model)).values()) == {0.8}
    assert len(kind(kind.Config()).over(model).param_groups) == 2


def test_weight_decay_stays_with_matrices_and_every_parameter_is_held_once() -> None:
    model = model_of("gpt2")
    made = AdamW(AdamW.Config(layer_decay=0.7, weight_decay=0.3)).over(model)
    held = [parameter for group in made.param_groups for parameter in group["params"]]
    assert len(held) == len({id(parameter) for parameter in held}) == len(list(model.parameters()))
    for group in made.param_groups:
        assert {parameter.ndim >= 2 for parameter in group["params"]} == {group["weight_decay"] == 0.3}


def test_rates_are_those_of_timm() -> None:
    """timm's own groups of the same vision transformer. It puts the closing norm with the last block, BEiT above it."""
    sizes_of_theirs = {"img_size": 32, "patch_size": 16, "embed_dim": 8, "depth": 3, "num_heads": 2, "num_classes": 5}
    theirs = timm.create_model("vit_tiny_patch16_224", **sizes_of_theirs)
    groups = param_groups_layer_decay(theirs, weight_decay=0.05, no_weight_decay_list=[], layer_decay=0.65)
    names = {id(parameter): name for name, parameter in theirs.named_parameters()}
    scales = {names[id(parameter)]: group["lr_scale"] for group in groups for parameter in group["params"]}
    sizes = Description(image_size=(32, 32), channels=3, classes=5)
    ours = model_of("vit", sizes, embedding={"name": "patches", "patch_size": [16, 16]})
    found = rates(ours, AdamW(AdamW.Config(lr=1.0, layer_decay=0.65)).over(ours))
    format_ = Registry.discover().find("weights", "vit").load().part()()
    for match in format_.found(ours):
        for name in match.ours if not match.theirs.startswith("norm.") else ():
            assert found[name] == pytest.approx(scales[match.theirs]), (match.theirs, name)


def test_an_encoder_decoder_is_one_tower_with_both_closing_norms_at_the_top() -> None:
    model = model_of("encoder_decoder", residual="pre", final_norm=True)
    depths = model.depths()
    assert depths["embedding.tokens.weight"] == 0
    assert [depths[f"encoder.blocks.{layer}.attention.query.weight"] for layer in range(3)] == [1, 2, 3]
    assert [depths[f"decoder.blocks.{layer}.cross_attention.query.weight"] for layer in range(3)] == [4, 5, 6]
    assert {depths[f"{side}.final_norm.norm.weight"] for side in ("encoder", "decoder")} == {7}


@pytest.mark.parametrize("decay", ["0", "-0.5", "1.1", ".nan"])
def test_a_decay_that_is_none_is_refused_with_its_place(decay: str) -> None:
    with pytest.raises(UserError, match="it must be above 0 and at most 1, or null") as caught:
        load_recipe("gpt2_text", [f"optimizer.layer_decay={decay}"])
    assert caught.value.where == f"override 1: optimizer.layer_decay={decay} (optimizer.layer_decay)"
