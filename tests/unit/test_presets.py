"""Every preset has the published number of parameters, through the same path that trains it."""

from __future__ import annotations

import pytest

from zoo.builder import build_model
from zoo.recipe import load_recipe

COUNTS = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "distilgpt2": 81_912_576,
    "openai-gpt": 116_534_784,
    "gpt3": 174_604_259_328,
}


@pytest.mark.article("GPT-3, notes")
@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_published_parameter_counts(name: str, count: int) -> None:
    model = build_model(load_recipe(name), device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize(("layers", "dim", "vocabulary", "length"), [(3, 48, 97, 31), (1, 16, 5, 7)])
def test_the_closed_form_of_gpt2(layers: int, dim: int, vocabulary: int, length: int) -> None:
    sizes = {"layers": layers, "dim": dim, "heads": 4, "vocab_size": vocabulary, "max_length": length}
    overrides = [f"architecture.{name}={value}" for name, value in sizes.items()]
    model = build_model(load_recipe("gpt2", overrides), device="meta")
    expected = vocabulary * dim + length * dim + layers * (12 * dim**2 + 13 * dim) + 2 * dim
    assert sum(parameter.numel() for parameter in model.parameters()) == expected
