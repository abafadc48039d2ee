"""What the builder refuses before there is a model, with its place in the recipe."""

from __future__ import annotations

import pytest

from zoo.builder import build_model
from zoo.contracts.data import Description
from zoo.errors import UserError
from zoo.recipe import load_recipe


def built(override: str) -> None:
    recipe = load_recipe("gpt2_text", ["architecture.layers=2", override])
    build_model(recipe, Description(vocab_size=5, max_length=8), device="meta")


@pytest.mark.parametrize(
    ("slot", "parts"),
    [
        ("attention", "multi_head, grouped_query, multi_head"),
        ("feed_forward", "mlp, swiglu, mlp"),
        ("position", "rotary, none, rotary"),
    ],
)
def test_a_list_longer_than_the_layers_is_refused_with_both_numbers(slot: str, parts: str) -> None:
    override = f"architecture.{slot}=[{parts}]"
    with pytest.raises(UserError) as caught:
        built(override)
    assert caught.value.what == f"architecture.{slot} lists 3 parts for 2 layers; no layer would use the last of them"
    assert caught.value.where == f"override 2: {override} (architecture.{slot})"
    assert caught.value.fix == "shorten the list, or give the architecture at least 3 layers"


@pytest.mark.parametrize("parts", ["multi_head", "multi_head, grouped_query"])
def test_a_list_may_be_as_long_as_the_layers(parts: str) -> None:
    built(f"architecture.attention=[{parts}]")


def test_sides_of_different_depth_may_share_a_list_that_one_of_them_uses_up() -> None:
    recipe = load_recipe("encdec_dates", ["architecture={name: encoder_decoder, dim: 16, heads: 2}"])
    layers = ["architecture.encoder.layers=2", "architecture.decoder.layers=3"]
    lists = ["architecture.feed_forward=[mlp, swiglu, mlp]", "architecture.encoder.attention=[multi_head, multi_head]"]
    sizes = Description(vocab_size=5, max_length=8)
    build_model(recipe.with_overrides(*layers, *lists), sizes, device="meta")
    longer = recipe.with_overrides(*layers, lists[1].replace("=[", "=[multi_head, "))
    with pytest.raises(UserError, match=r"encoder\.attention lists 3 parts for 2 layers"):
        build_model(longer, sizes, device="meta")
