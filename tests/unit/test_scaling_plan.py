"""From compute to a recipe: the rule, the shape, time and memory, and what becomes of wrong input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from lightning.fabric.utilities.throughput import _CUDA_FLOPS

from zoo.cli import main
from zoo.contracts.data import Description
from zoo.errors import UserError
from zoo.info import information
from zoo.recipe import load_recipe
from zoo.scaling.devices import DEVICES
from zoo.scaling.ladder import count
from zoo.scaling.law import PUBLISHED
from zoo.scaling.plan import make_plan, recipe_text
from zoo.scaling.request import Rule, budget, read_machine, read_rule
from zoo.scaling.shapes import find_shape

GPT2 = 124_439_808
TEXT = Description(vocab_size=2048, max_length=256)
LAW = {"E": 0.8, "A": 20.0, "B": 60.0, "a": 0.35, "b": 0.4}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a fit in it."""
    monkeypatch.chdir(tmp_path)
    found = {"law": LAW, "counted": "all", "range": {"parameters": [1e4, 1e6], "tokens": [2.5e5, 2.5e6]}}
    (tmp_path / "scaling.json").write_text(json.dumps(found))
    return tmp_path


def planned(flops: float, rule: Rule | None = None, recipe: str = "gpt2_text", **options: Any) -> dict[str, Any]:
    return make_plan(load_recipe(recipe), TEXT, flops, rule or read_rule(), **options)


# What is asked for


def test_hours_of_a_device_are_its_peak_times_the_share_that_is_reached() -> None:
    h100 = read_machine("h100", None)
    assert budget(None, 24, h100, 0.4) == pytest.approx(24 * 3600 * 989e12 * 0.4)
    assert budget(None, 1, read_machine(None, 1e12), 0.5) == pytest.approx(1.8e15)
    assert budget(1e18, None, None) == 1e18


@pytest.mark.parametrize(
    ("name", "theirs"), [("a100", "a100"), ("h100", "h100 sxm"), ("h100-pcie", "h100 pcie"), ("l4", "l4")]
)
def test_rates_are_those_of_lightning(name: str, theirs: str) -> None:
    """Where Lightning has dense rates; for others it has those with sparsity, or of plain cores."""
    assert DEVICES[name].peak == pytest.approx(_CUDA_FLOPS[theirs][torch.bfloat16], rel=1e-3)


def test_the_rule_is_twenty_unless_another_is_given(here: Path) -> None:
    assert read_rule().allocate(1.2e20).ratio == pytest.approx(20)
    assert read_rule(5).allocate(1.2e20).ratio == pytest.approx(5)
    assert read_rule(fit="hoffmann-2022").allocate(5.76e23) == PUBLISHED["hoffmann-2022"].allocate(5.76e23)
    for source in ("scaling.json", "."):
        rule = read_rule(fit=source)
        assert rule.law is not None and rule.law.plain() == LAW and rule.counted == "all"


# The shape


def test_the_size_of_gpt2_gives_a_model_like_gpt2() -> None:
    shape = find_shape(load_recipe("gpt2"), None, GPT2, "all")
    assert shape.parameters.total == pytest.approx(GPT2, rel=0.03)
    assert 9 <= shape.layers <= 16 and 640 <= shape.dim <= 896 and shape.dim // shape.heads == 64


@pytest.mark.parametrize("parameters", [1e7, 1.3e9])
def test_shapes_have_the_proportions_of_gpt3s_table(parameters: float) -> None:
    shape = find_shape(load_recipe("gpt3"), None, parameters, "without-embeddings")
    assert shape.parameters.of("without-embeddings") == pytest.approx(parameters, rel=0.05)
    assert 30 < shape.dim / shape.layers < 130
    assert shape.dim % shape.heads == 0


def test_both_ways_of_counting_are_met() -> None:
    recipe = load_recipe("gpt2_text")
    for counted in ("all", "without-embeddings"):
        shape = find_shape(recipe, TEXT, 2e6, counted)  # type: ignore[arg-type]
        assert shape.parameters.of(counted) == pytest.approx(2e6, rel=0.05)  # type: ignore[arg-type]
        assert shape.parameters == count(shape.recipe, TEXT)
        assert shape.parameters.total - shape.parameters.of("without-embeddings") == 2048 * shape.dim


def test_sizes_that_parts_were_given_keep_their_proportions() -> None:
    recipe = load_recipe("llama-3.2-1b")  # width 2,048, 32 heads on 8, hidden 8,192
    shape = find_shape(recipe, None, 4e8, "all")
    assert shape.changes["feed_forward"]["hidden"] == pytest.approx(4 * shape.dim, abs=8)
    kv_heads = shape.changes["attention"]["kv_heads"]
    assert shape.heads % kv_heads == 0 and shape.heads / kv_heads == pytest.approx(4, rel=0.5)


def test_parts_in_a_list_keep_their_proportions_too() -> None:
    parts = "[multi_head,{name: grouped_query,kv_heads: 2}]"
    recipe = load_recipe("gpt2_text", [f"architecture.attention={parts}"])
    shape = find_shape(recipe, TEXT, 3e6, "all")
    assert shape.layers % 2 == 0
    assert shape.recipe.config("architecture.attention.1").kv_heads == pytest.approx(shape.heads / 2, abs=1)
    assert shape.recipe.component("architecture.attention.0").name == "multi_head"
    assert shape.parameters.total == pytest.approx(3e6, rel=0.05)


def test_a_size_that_the_vocabulary_alone_exceeds_is_refused() -> None:
    with pytest.raises(UserError, match=r"no model of gpt2 has about 10,000 parameters; the nearest has \d"):
        find_shape(load_recipe("gpt2"), None, 1e4, "all")


# The plan


@pytest.fixture(scope="module")
def plan() -> dict[str, Any]:
    return planned(1e15, train_tokens=3_000_000)


def test_the_plan_spends_the_compute(plan: dict[str, Any]) -> None:
    assert plan["best"]["tokens"] == pytest.approx(20 * plan["best"]["parameters"])
    assert plan["parameters"] == pytest.approx((1e15 / 120) ** 0.5, rel=0.05)
    assert 6 * plan["parameters"] * plan["tokens"] == pytest.approx(1e15, rel=0.001)
    assert plan["tokens"] == plan["steps"] * plan["tokens_per_step"] == plan["steps"] * 8 * 256
    assert plan["epochs"] == pytest.approx(plan["tokens"] / 3e6)
    assert any("each is seen" in note for note in plan["notes"])


def test_the_counted_compute_is_three_times_that_of_a_forward_pass(plan: dict[str, Any]) -> None:
    recipe = load_recipe("gpt2_text", [f"architecture.{key}={value}" for key, value in plan["shape"].items()])
    hidden = plan["recipe"]["architecture"]["feed_forward"]["hidden"]
    facts = information(recipe.with_overrides(f"architecture.feed_forward.hidden={hidden}"), TEXT)
    assert facts.parameters["total"] == plan["parameters"]
    assert plan["flops_counted"] == pytest.approx(3 * 2 * facts.macs["macs_per_token"] * plan["tokens"])
    assert plan["memory_bytes"] == facts.memory_bytes


def test_time_and_memory_are_said_for_each_device(plan: dict[str, Any]) -> None:
    by_name = {each["name"]: each for each in plan["devices"]}
    assert [*by_name] == [*DEVICES]
    assert by_name["a100"]["hours"] == pytest.approx(1e15 / (312e12 * 0.4) / 3600)
    assert by_name["a100"]["least_devices"] == 1
    large = planned(1e21, recipe="gpt3", machine=read_machine("h100", None))
    (device,) = large["devices"]
    memory = large["memory_bytes"]
    state = memory["weights"] + memory["gradients"] + memory["optimizer"]
    assert state == pytest.approx(16 * large["parameters"], rel=1e-3)  # Adam in float32
    assert device["least_devices"] == -(-state // (80e9 - memory["activations"]))
    assert device["hours"] == pytest.approx(1e21 / (989e12 * 0.4) / 3600)


def test_batch_and_learning_rate_follow_the_compute_where_that_was_fitted(plan: dict[str, Any]) -> None:
    assert "optimizer" not in plan["recipe"]
    large = planned(1e19)
    assert large["recipe"]["optimizer"]["lr"] == pytest.approx(0.3118 * 1e19**-0.125, rel=0.01)
    assert large["tokens_per_step"] == pytest.approx(0.2920 * 1e19**0.3271, rel=0.01)
    assert large["recipe"]["training"]["micro_batch_size"] == 8192 // 256


def test_a_fitted_law_plans_too_and_says_how_far_it_reaches(here: Path) -> None:
    found = planned(1e18, read_rule(fit="scaling.json"))
    assert found["loss"] is not None and any("beyond the runs" in note for note in found["notes"])
    near = planned(6e12, read_rule(fit="scaling.json"))
    assert not any("beyond the runs" in note for note in near["notes"])


@pytest.mark.parametrize("source", ["vit_digits", "encdec_dates", "bert_base"])
def test_models_that_the_laws_are_not_about_are_refused(source: str) -> None:
    with pytest.raises(UserError, match="the laws are of causal models of tokens"):
        planned(1e18, recipe=source)


# The recipe


def test_the_recipe_is_the_plan(here: Path) -> None:
    overrides = ["architecture.attention={name: grouped_query, kv_heads: 2}", "architecture.dropout=0.1"]
    recipe = load_recipe("gpt2_text", overrides)
    plan = make_plan(recipe, TEXT, 1e15, read_rule())
    (here / "planned.yaml").write_text(recipe_text(recipe, overrides, plan, here))
    read = load_recipe("planned.yaml")
    assert count(read, TEXT).total == plan["parameters"]
    assert read.trainer["max_steps"] == plan["steps"]
    assert read.component("architecture.attention").name == "grouped_query"
    assert read.config("architecture").dropout == 0.1
    assert yaml.safe_load((here / "planned.yaml").read_text())["base"] == "gpt2_text"


def test_a_recipe_of_ones_own_is_named_by_the_way_to_it(here: Path) -> None:
    (here / "own").mkdir()
    (here / "own" / "mine.yaml").write_text("base: gpt2_text\n")
    text = recipe_text(load_recipe("own/mine.yaml"), (), {**planned(1e14), "flops": 1e14}, here)
    assert yaml.safe_load(text)["base"] == "own/mine.yaml"


# The command


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["plan", *arguments])
    out, error = capsys.readouterr()
    return code, out, error


def test_what_is_printed_is_a_recipe(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--flops", "1e19", "--recipe", "gpt2", "--device", "a100")
    assert code == 0
    document = yaml.safe_load(out)
    assert document["base"] == "preset/gpt2" and document["architecture"]["layers"] > 1
    assert "NVIDIA A100 80 GB" in out and "To train it, name task" in out


def test_it_is_written_to_a_file_and_never_over_another(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--gpu-hours", "1", "--peak", "1e15", "--recipe", "gpt2", "--output", "new.yaml")
    code, out, _ = said(capsys, *arguments)
    assert code == 0 and "recipe: new.yaml" in out and "base:" not in out
    before = Path("new.yaml").read_text()
    code, _, error = said(capsys, *arguments)
    assert code == 2 and "there is something already" in error and Path("new.yaml").read_text() == before


def test_json_is_one_document(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--flops", "1e19", "--recipe", "gpt2", "--json")
    found = json.loads(out)
    assert code == 0 and found["parameters"] > 0 and found["output"] is None
    assert {"flops", "tokens", "steps", "shape", "memory_bytes", "devices", "recipe", "notes"} <= found.keys()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "neither FLOPs nor hours are given"),
        (["--flops", "1e18", "--gpu-hours", "2"], "FLOPs and hours exclude each other"),
        (["--flops", "-1"], "--flops is -1"),
        (["--flops", "nan"], "--flops is nan"),
        (["--flops", "inf"], "--flops is inf"),
        (["--flops", "much"], "'much' is not a valid float"),
        (["--gpu-hours", "2"], "hours of which device?"),
        (["--gpu-hours", "0", "--device", "a100"], "--gpu-hours is 0"),
        (["--flops", "1e18", "--device", "h1000"], "device 'h1000' isn't in the table; did you mean 'h100'"),
        (["--flops", "1e18", "--device", "h100", "--peak", "1e12"], "a device and a peak exclude each other"),
        (["--flops", "1e18", "--peak", "0"], "--peak is 0"),
        (["--flops", "1e18", "--utilisation", "1.5"], "the utilisation is 1.5"),
        (["--flops", "1e18", "--ratio", "0"], "--ratio is 0"),
        (["--flops", "1e18", "--ratio", "20", "--fit", "scaling.json"], "a ratio and a fit exclude each other"),
        (["--flops", "1e18", "--fit", "hofmann-2022"], "did you mean 'hoffmann-2022'"),
        (["--flops", "1e18", "--fit", "broken.json"], "the fit is no JSON"),
        (["--flops", "1e18", "--fit", "empty.json"], "E is None; a law has five constants"),
        (["--flops", "1e18", "--recipe", "gtp2"], "there is no recipe 'gtp2'; did you mean 'gpt2'"),
        (["--flops", "1e18", "--recipe", "vit_base_patch16_224"], "the laws are of causal models of tokens"),
        (["--flops", "1e9", "--recipe", "gpt2"], "no model of gpt2 has about"),
        (["--flops", "1e18", "--recipe", "gpt2", "--output", "no/where.yaml"], "there is no such folder"),
        (["--flops", "1e18", "--recipe", "gpt2", "architecture.layer=3"], "did you mean 'layers'"),
    ],
)
def test_wrong_input_is_one_message(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (here / "broken.json").write_text("{")
    (here / "empty.json").write_text("[]")
    code, out, error = said(capsys, *arguments)
    assert code == 2 and not out
    assert error.startswith("error: ") and error.count("error: ") == 1
    assert message in error
