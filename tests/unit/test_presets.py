"""Every preset has the published number of parameters, through the same path that trains it."""

from __future__ import annotations

import pytest
from torch import nn

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
    "bert-tiny": 4_385_920,
    "bert-mini": 11_170_560,
    "bert-small": 28_763_648,
    "bert-medium": 41_373_184,
    "all-minilm-l6-v2": 22_713_216,
    "bert-base-uncased": 109_482_240,
    "bert-large-uncased": 335_141_888,
    "roberta-base": 124_645_632,
    "roberta-large": 355_359_744,
    "modern-bert-base": 149_656_768,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "tinyllama-1.1b": 1_100_048_384,
    "smollm-135m": 134_515_008,
    "mistral-7b": 7_241_732_096,
    "qwen2-0.5b": 494_032_768,
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016,
    "vit_tiny_patch16_224": 5_717_416,
    "vit_small_patch16_224": 22_050_664,
    "vit_base_patch16_224": 86_567_656,
    "vit_large_patch16_224": 304_326_632,
    "vit_small_patch32_224": 22_878_952,
    "vit_base_patch32_224": 88_224_232,
    "vit_base_patch8_224": 86_576_872,
    "vit_base_patch16_384": 86_859_496,
    "vit_huge_patch14_224": 632_045_800,
    "vit_base_patch16_rope_224": 86_434_792,
    "vit_relpos_base_patch16_224": 86_429_560,
    "deit_base_distilled_patch16_224": 87_338_192,
    "vaswani-base": 63_082_496,
    "vaswani-big": 214_245_376,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-v1_1-small": 76_961_152,
    "t5-v1_1-base": 247_577_856,
    "t5-v1_1-large": 783_150_080,
    "bart-base": 139_420_416,
    "bart-large": 406_291_456,
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


@pytest.mark.parametrize(("layers", "dim", "patch", "grid", "classes"), [(3, 48, 4, (5, 2), 7), (1, 16, 7, (1, 1), 2)])
def test_the_closed_form_of_vit(layers: int, dim: int, patch: int, grid: tuple[int, int], classes: int) -> None:
    sizes = {"layers": layers, "dim": dim, "heads": 4, "classes": classes, "embedding.patch_size": [patch, patch]}
    sizes["image_size"] = [side * patch for side in grid]
    overrides = [f"architecture.{name}={value}" for name, value in sizes.items()]
    model = build_model(load_recipe("vit_base_patch16_224", overrides), device="meta")
    d, n, f = dim, grid[0] * grid[1], 4 * dim
    layer = 4 * (d**2 + d) + 4 * d + 2 * d * f + f + d
    expected = 3 * patch**2 * d + d + d + (n + 1) * d + layers * layer + 2 * d + d * classes + classes
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.article("Vaswani base, notes")
@pytest.mark.parametrize(
    ("name", "closing_norms", "without_table"),
    [("vaswani-base", 63_084_544, 44_140_544), ("vaswani-big", 214_249_472, 176_361_472)],
)
def test_a_vaswani_with_closing_norms_is_torchs_transformer(name: str, closing_norms: int, without_table: int) -> None:
    model = build_model(load_recipe(name, ["architecture.final_norm=true"]), device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == closing_norms
    dim, heads = model.config.dim, model.config.heads
    theirs = nn.Transformer(dim, heads, dim_feedforward=4 * dim, device="meta")
    assert sum(parameter.numel() for parameter in theirs.parameters()) == without_table
    assert closing_norms - model.embedding.table.numel() == without_table


@pytest.mark.parametrize(("layers", "dim", "heads", "size", "hidden"), [(3, 48, 4, 12, 100), (1, 16, 3, 8, 20)])
def test_the_closed_form_of_t5(layers: int, dim: int, heads: int, size: int, hidden: int) -> None:
    sizes = {"layers": layers, "dim": dim, "heads": heads, "vocab_size": 97}
    sizes |= {"attention.size": size, "feed_forward.hidden": hidden}
    overrides = [f"architecture.{name}={value}" for name, value in sizes.items()]
    model = build_model(load_recipe("t5-small", overrides), device="meta")
    encoder = layers * (4 * dim * heads * size + 2 * dim * hidden + 2 * dim)
    decoder = layers * (8 * dim * heads * size + 2 * dim * hidden + 3 * dim)
    expected = 97 * dim + 2 * 32 * heads + encoder + decoder + 2 * dim
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.parametrize(
    ("name", "head", "count"),
    [
        ("bert-base-uncased", "masked_lm", 109_514_298),
        ("bert-base-uncased", "pretraining", 110_106_428),
        ("bert-large-uncased", "masked_lm", 335_174_458),
        ("bert-large-uncased", "pretraining", 336_226_108),
    ],
)
def test_published_parameter_counts_of_other_heads(name: str, head: str, count: int) -> None:
    model = build_model(load_recipe(name, [f"architecture.head={head}"]), device="meta")
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize(("layers", "dim", "vocabulary", "hidden"), [(3, 48, 97, 100), (1, 16, 5, 7)])
def test_the_closed_form_of_bert(layers: int, dim: int, vocabulary: int, hidden: int) -> None:
    sizes = {"layers": layers, "dim": dim, "heads": 4, "vocab_size": vocabulary, "feed_forward.hidden": hidden}
    overrides = [f"architecture.{name}={value}" for name, value in sizes.items()]
    model = build_model(load_recipe("bert-base-uncased", overrides), device="meta")
    d, f = dim, hidden
    layer = 4 * (d**2 + d) + 2 * d + d * f + f + f * d + d + 2 * d
    expected = vocabulary * d + 512 * d + 2 * d + 2 * d + layers * layer + d**2 + d
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3.2-1b", "qwen2-0.5b"])
@pytest.mark.parametrize(("layers", "dim", "hidden"), [(3, 64, 100), (1, 16, 7)])
def test_the_closed_form_of_llama(name: str, layers: int, dim: int, hidden: int) -> None:
    sizes = {"layers": layers, "dim": dim, "heads": 4, "vocab_size": 97, "feed_forward.hidden": hidden}
    shared = 4 if name == "llama-2-7b" else 2
    overrides = [f"architecture.{key}={value}" for key, value in sizes.items()]
    overrides += [f"architecture.attention.kv_heads={shared}"]
    model = build_model(load_recipe(name, overrides), device="meta")
    d, f, h, g, k = dim, hidden, 4, shared, dim // 4
    layer = d * h * k + 2 * d * g * k + h * k * d + 3 * d * f + 2 * d
    biases = layers * (d + 2 * g * k) if name == "qwen2-0.5b" else 0
    tables = 2 if name == "llama-2-7b" else 1
    assert sum(parameter.numel() for parameter in model.parameters()) == 97 * d * tables + layers * layer + d + biases


def test_modern_bert_looks_at_everything_in_every_third_layer() -> None:
    model = build_model(load_recipe("modern-bert-base"), device="meta")
    windows = [getattr(block.attention.config, "window", None) for block in model.block_modules()]
    assert windows == [None if layer % 3 == 0 else 65 for layer in range(22)]
    thetas = [scheme.config.theta for scheme in model.stack.positions]
    assert [thetas[layer % len(thetas)] for layer in range(4)] == [160_000.0, 10_000.0, 10_000.0, 160_000.0]
