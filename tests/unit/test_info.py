"""Counts and measurements against published numbers, the article's table, and what a real forward pass keeps."""

from __future__ import annotations

import math
import resource
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from zoo.builder import build_model
from zoo.cli.output import table as aligned
from zoo.contracts.values.mask import EVERYTHING
from zoo.errors import UserError
from zoo.info import Information, information
from zoo.info.memory import activation_bytes, cache_bytes, optimizer_bytes
from zoo.info.operations import count_products
from zoo.info.parameters import by_part, parts, table
from zoo.recipe import Recipe, load_recipe
from zoo_builtin.attention.single_head import SingleHead

SMALL = (
    "architecture.vocab_size=50",
    "architecture.max_length=24",
    "architecture.layers=3",
    "architecture.dim=16",
    "architecture.heads=4",
)


def small(*overrides: str) -> Recipe:
    return load_recipe("gpt2", [*SMALL, *overrides])


def lines_of(recipe: Recipe) -> list[tuple[str, int]]:
    model = build_model(recipe, device="meta")
    names = {component.load(): component.name for component in recipe.components()}
    return [tuple(line) for line in table(model, parts(model, names))]


@pytest.fixture(scope="module")
def gpt2() -> Information:
    return information(load_recipe("gpt2"))


# Parameters (bugs C2)


@pytest.mark.parametrize(("preset", "total"), [("gpt2-medium", 354_823_168), ("openai-gpt", 116_534_784)])
def test_the_parts_of_a_model_are_all_of_it(preset: str, total: int) -> None:
    found = parts(build_model(load_recipe(preset), device="meta"), {})
    assert sum(part.parameters for part in found) == sum(by_part(found).values()) == total


@pytest.mark.article("table of section 7, Counting a real model")
def test_gpt2_has_the_table_of_the_article(gpt2: Information) -> None:
    assert [tuple(line) for line in gpt2.table] == [
        ("attention multi_head, per layer", 2_362_368),
        ("feed-forward mlp, per layer", 4_722_432),
        ("2 x norm layer_norm, per layer", 3_072),
        ("one layer", 7_087_872),
        ("12 layers", 85_054_464),
        ("token embeddings (50,257 x 768)", 38_597_376),
        ("position embeddings learned (1,024 x 768)", 786_432),
        ("final norm layer_norm", 1_536),
        ("total", 124_439_808),
    ]


def test_the_embeddings_of_gpt2_are_told_apart(gpt2: Information) -> None:
    counts = gpt2.parameters
    assert counts["total"] - counts["embedding"] == 85_056_000
    assert counts["total"] - counts["by_part"]["position"] == 123_653_376
    assert counts["trainable"] == counts["total"]


def test_an_untied_head_is_a_part_of_its_own() -> None:
    tied, untied = dict(lines_of(small())), dict(lines_of(small("architecture.head.tied=false")))
    assert "head (50 x 16)" not in tied
    assert untied["head (50 x 16)"] == 800
    assert untied["total"] == tied["total"] + 800


def test_layers_that_differ_are_shown_apart() -> None:
    lines = lines_of(small("architecture.attention=[multi_head, {name: grouped_query, kv_heads: 1}]"))
    assert [line for line in lines if "layer" in line[0] and "norm" not in line[0]] == [
        ("attention multi_head, in each of layers 0, 2", 4 * (16 * 16 + 16)),
        ("feed-forward mlp, in each of layers 0, 2", 8 * 16 * 16 + 5 * 16),
        ("one of layers 0, 2", 1088 + 2128 + 64),
        ("attention grouped_query, in each of layers 1", 2 * (16 * 16 + 16) + 2 * (16 * 4 + 4)),
        ("feed-forward mlp, in each of layers 1", 2128),
        ("one of layers 1", 680 + 2128 + 64),
        ("3 layers", 2 * 3280 + 2872),
    ]


def test_a_scheme_without_parameters_has_no_line() -> None:
    assert not any("position" in label for label, _ in lines_of(small("architecture.position=rotary")))


# Multiply-adds (bugs C1)


@pytest.mark.article("cost, section 3")
@pytest.mark.parametrize(("length", "dim", "query"), [(24, 16, 16), (40, 16, 6)])
def test_one_attention_costs_what_the_article_says(length: int, dim: int, query: int) -> None:
    with torch.device("meta"):
        layer = SingleHead(SingleHead.Config(size=query), dim=dim)
        x = torch.empty(1, length, dim)
    count = count_products(lambda: layer(x, mask=EVERYTHING.sized(length, length)))
    projections = 2 * length * dim * query + length * dim**2  # 3 N D^2 where the queries are as wide as the input
    assert count.multiply_adds == projections + length**2 * (query + dim)


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) / 8).softmax(-1) @ v


def test_fused_causal_masked_and_written_out_attention_cost_the_same() -> None:
    q = torch.empty(1, 12, 64, 64, device="meta")
    allowed = torch.ones(64, 64, dtype=torch.bool, device="meta")
    counts = [
        count_products(lambda: F.scaled_dot_product_attention(q, q, q)),
        count_products(lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True)),
        count_products(lambda: F.scaled_dot_product_attention(q, q, q, attn_mask=allowed)),
        count_products(lambda: by_hand(q, q, q)),
    ]
    assert counts == [(12_582_912 // 2, [])] * 4


@pytest.mark.article("multiply-adds per token, section 7")
def test_gpt2_costs_what_the_article_says(gpt2: Information) -> None:
    assert gpt2.macs["macs_per_token"] == 142_406_400 == 12 * 12 * 768**2 + 50257 * 768 + 12 * 2 * 1024 * 768
    assert gpt2.tokens == 1024


@pytest.mark.parametrize("attention", ["multi_head", "{name: multi_head, kernel: eager}", "single_head"])
def test_a_kernel_changes_no_count(attention: str) -> None:
    result = information(small("architecture.heads=1", f"architecture.attention={attention}"))
    projections = 3 if attention == "single_head" else 4
    assert result.macs["macs_per_token"] == 3 * ((projections + 8) * 16**2 + 2 * 24 * 16) + 50 * 16
    assert result.unknown_operations == []


def test_attention_makes_the_cost_grow_faster_than_the_length() -> None:
    short, long = (information(small(f"architecture.max_length={length}")) for length in (24, 48))
    assert long.macs["macs_per_token"] - short.macs["macs_per_token"] == 3 * 2 * 24 * 16


def test_an_operation_without_formula_is_unknown_never_free() -> None:
    x = torch.empty(4, 4, device="meta")
    result = count_products(lambda: (torch.linalg.svd(x), x @ x))
    assert result.multiply_adds is None
    assert result.unknown == ["aten._linalg_svd.default"]


def test_a_custom_operation_is_unknown() -> None:
    with torch.library._scoped_library("zoo_test", "FRAGMENT") as library:
        library.define("scan(Tensor x) -> Tensor")
        library.impl("scan", lambda x: torch.empty_like(x), "Meta")
        x = torch.empty(4, 4, device="meta")
        assert count_products(lambda: torch.ops.zoo_test.scan(x)) == (None, ["zoo_test.scan.default"])


def test_a_count_that_is_no_whole_number_per_token_keeps_its_fraction() -> None:
    from zoo.info.summary import _share

    assert (_share(12, 4), _share(13, 4), _share(None, 4)) == (3, 3.25, None)


# Memory


def test_weights_gradients_and_two_states_of_adamw(gpt2: Information) -> None:
    assert gpt2.memory_bytes["weights"] == gpt2.memory_bytes["gradients"] == 4 * 124_439_808
    assert gpt2.memory_bytes["optimizer"] == 8 * 124_439_808
    assert gpt2.dtype == "float32"


def test_half_precision_halves_the_bytes() -> None:
    whole, half = information(small()), information(small("trainer.precision=bf16-true"))
    assert half.dtype == "bfloat16"
    assert [half.memory_bytes[name] * 2 for name in ("weights", "gradients", "optimizer")] == [
        whole.memory_bytes[name] for name in ("weights", "gradients", "optimizer")
    ]


def kept_on_a_processor(recipe: Recipe, rows: int) -> int:
    """Bytes of all distinct storages that a real forward pass and loss keep, weights left out."""
    model = build_model(recipe)
    model.train()
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    kept: dict[int, tuple[int, Tensor]] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights and storage.nbytes():
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    ids = torch.zeros(rows, 24, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        hidden = model(ids).hidden
        logits = model.head(hidden.flatten(0, 1))
        loss = F.cross_entropy(logits, ids.flatten(), reduction="sum")
    assert math.isfinite(loss.item())
    return sum(size for size, _ in kept.values())


@pytest.mark.parametrize(
    "attention", ["multi_head", "{name: multi_head, kernel: eager}", "{name: grouped_query, kv_heads: 2}"]
)
@pytest.mark.parametrize("position", ["learned", "rotary"])
def test_activations_are_what_a_real_pass_keeps(attention: str, position: str) -> None:
    recipe = small(f"architecture.attention={attention}", f"architecture.position={position}")
    model = build_model(recipe, device="meta")
    measured = activation_bytes(model, torch.zeros(2, 24, dtype=torch.int64, device="meta"), {})
    real = kept_on_a_processor(recipe, rows=2)
    assert measured == pytest.approx(real, rel=0.02)


def test_the_cache_grows_by_keys_and_values() -> None:
    assert information(small()).cache_bytes_per_token == 3 * 2 * 16 * 4
    grouped = build_model(small("architecture.attention={name: grouped_query, kv_heads: 1}"), device="meta")
    assert cache_bytes(grouped, 16) == 3 * 2 * 4 * 4


def test_an_optimizer_that_cannot_step_on_the_meta_device_is_unknown() -> None:
    class Fused:
        def make(self, parameters: Any) -> torch.optim.Optimizer:
            return torch.optim.AdamW([parameter for _, parameter in parameters], fused=True)

    assert optimizer_bytes(build_model(small(), device="meta"), Fused()) is None


def test_a_preset_counts_one_row_and_a_recipe_the_rows_of_a_device() -> None:
    whole = ("task=causal_lm", "data.batch_size=10")
    assert information(small()).rows == 1
    assert information(small(*whole)).rows == 10
    assert information(small(*whole, "trainer.devices=3")).rows == 4
    assert information(small(*whole, "training.micro_batch_size=2")).rows == 2


# The whole


def test_the_json_document_has_the_fields_that_scripts_rely_on(gpt2: Information) -> None:
    document = gpt2.json()
    assert {"parameters", "macs_per_token", "tokens", "dtype", "cache_bytes_per_token", "memory_bytes"} <= set(document)
    assert set(document["parameters"]) == {"total", "active", "trainable", "embedding", "by_part"}
    assert set(document["memory_bytes"]) == {"weights", "gradients", "optimizer", "activations"}
    assert document["table"][-1] == {"label": "total", "parameters": 124_439_808}


def test_an_unknown_length_is_asked_for() -> None:
    with pytest.raises(UserError, match=r"length of a sequence isn't known.*\n.*\n.*architecture.max_length=1024"):
        information(small("architecture.max_length=null", "architecture.position=rotary"))


@pytest.mark.slow
def test_gpt3_takes_no_memory_to_speak_of() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = information(load_recipe("gpt3"))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.parameters["total"] == 174_604_259_328
    assert result.macs["macs_per_token"] == 12 * 96 * 12288**2 + 50257 * 12288 + 96 * 2 * 2048 * 12288
    assert result.cache_bytes_per_token == 96 * 2 * 12288 * 4
    assert grown < 200_000  # kB, of a model of 698 GB


def test_numbers_stand_under_each_other() -> None:
    assert aligned([("a", "1,000"), ("long", "10")], right=True) == "a     1,000\nlong     10"


def test_transforms_and_triangular_systems_have_the_textbooks_costs() -> None:
    complex_38 = torch.empty(3, 8, dtype=torch.complex64, device="meta")
    assert count_products(lambda: torch.fft.fft(complex_38)) == (5 * 3 * 8 * 3 // 2, [])
    real_38 = torch.empty(3, 8, device="meta")
    assert count_products(lambda: torch.fft.rfft(real_38)) == (5 * 3 * 8 * 3 // 4, [])
    system, known = torch.empty(2, 4, 4, device="meta"), torch.empty(2, 4, 3, device="meta")
    solve = torch.linalg.solve_triangular
    assert count_products(lambda: solve(system, known, upper=False)) == (2 * 3 * 4 * 4 // 2, [])


def test_parameters_of_experts_that_a_token_isnt_sent_to_are_idle() -> None:
    counts = information(small("architecture.feed_forward={name: mixture, experts: 4, top_k: 1, renormalize: false}"))
    idle = sum(
        parameter.numel() * 3 // 4
        for name, parameter in build_model(
            small("architecture.feed_forward={name: mixture, experts: 4, top_k: 1, renormalize: false}"), device="meta"
        ).named_parameters()
        if ".experts." in name
    )
    assert idle > 0
    assert counts.parameters["total"] - counts.parameters["active"] == idle
    assert information(small()).parameters["active"] == information(small()).parameters["total"]
