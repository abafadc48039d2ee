"""The budget solver on real recipes: what it reaches, what it leaves alone, what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zoo.builder import build_model
from zoo.comparison import match
from zoo.comparison.match import Matched, measure, solve
from zoo.comparison.quantities import counts
from zoo.contracts.data import Description
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.registry import Registry

REGISTRY = Registry.discover()
DATA = Description(vocab_size=50, max_length=24, classes=10, image_size=(8, 8), channels=1)
TASKS = {
    "gpt2": ("causal_lm", {"name": "text", "source": "python-docs"}),
    "bert": ("masked_lm", {"name": "text", "source": "python-docs"}),
    "vit": ("image_classification", {"name": "images", "source": "digits"}),
    "encoder_decoder": ("seq2seq", {"name": "pairs", "source": "dates"}),
}


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    match._known.clear()
    yield
    match._known.clear()


def recipe(architecture: str = "gpt2", **more: Any) -> Recipe:
    task, data = TASKS[architecture]
    sizes: dict[str, Any] = {"layers": 2, "dim": 32, "heads": 4}
    if architecture == "vit":
        sizes["embedding"] = {"name": "patches", "patch_size": [2, 2]}
    values = {"data": data, "architecture": {"name": architecture, **sizes, **more}, "task": task}
    return Recipe.from_dict(values, registry=REGISTRY)


def counted(made: Recipe) -> int:
    return sum(parameter.numel() for parameter in build_model(made, DATA, device="meta").parameters())


def solved(made: Recipe, quantity: str, value: float, tolerance: float = 0.01) -> Matched:
    """A solution, which must hold what it says."""
    found = solve(made, quantity, value, tolerance, DATA)
    assert abs(found.reached - value) <= tolerance * value
    assert found.residual == (found.reached - value) / value
    assert measure(made.with_overrides(*(f"{k}={v}" for k, v in found.overrides.items())), quantity, DATA) == (
        found.reached
    )
    changed = {change.path for change in made.diff(found.recipe)}
    assert changed <= set(found.overrides)
    return found


# What there is to match


def test_the_quantities_of_a_model() -> None:
    gpt2 = recipe()
    assert measure(gpt2, "parameters", DATA) == counted(gpt2)
    assert measure(gpt2, "macs", DATA) == 2 * (12 * 32**2 + 2 * 24 * 32) + 50 * 32
    assert measure(gpt2, "cache_bytes", DATA) == 2 * 2 * 32 * 4
    assert measure(gpt2, "state", DATA) == 0


def test_state_is_what_does_not_grow_with_the_length() -> None:
    linear = recipe(attention="linear")
    heads, size = 4, 8
    assert measure(linear, "cache_bytes", DATA) == 0
    assert measure(linear, "state", DATA) >= 2 * heads * size * size * 4
    window = recipe(attention={"name": "sliding_window", "window": 5})
    assert (measure(window, "cache_bytes", DATA), measure(window, "state", DATA)) == (0, 2 * 5 * 2 * 32 * 4)
    mixed = recipe(attention=["multi_head", {"name": "sliding_window", "window": 5}])
    assert measure(mixed, "cache_bytes", DATA) == 2 * 32 * 4
    assert measure(mixed, "state", DATA) == 5 * 2 * 32 * 4
    wide = recipe(attention={"name": "sliding_window", "window": 100})
    assert (measure(wide, "cache_bytes", DATA), measure(wide, "state", DATA)) == (2 * 2 * 32 * 4, 0)


def test_a_source_is_state_of_an_encoder_decoder() -> None:
    pairs = recipe("encoder_decoder")
    assert measure(pairs, "cache_bytes", DATA) == 2 * 2 * 32 * 4
    assert measure(pairs, "state", DATA) == 24 * (32 + 2 * 2 * 32) * 4  # memory, and keys and values of each layer


@pytest.mark.parametrize("architecture", ["bert", "vit"])
def test_what_generates_nothing_has_no_cache(architecture: str) -> None:
    with pytest.raises(UserError, match="with no cache, so it has no cache_bytes to match"):
        solve(recipe(architecture), "cache_bytes", 1000, 0.01, DATA)


def test_an_unknown_operation_has_no_multiply_adds(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        '''"""An attention with an operation that has no formula."""

import torch

from zoo.contracts.attention import HeadedAttention

__all__ = ["Own"]


class Own(HeadedAttention):
    """Plain, times the first singular value over itself."""

    def attend(self, q_BNTH, k_BNSH, v_BNSV, call):
        largest = torch.linalg.svdvals(v_BNSV)[..., :1, None]
        return call.softmax(call.scores(q_BNTH, k_BNSH)) @ (v_BNSV * (largest / largest))
'''
    )
    values = {"plugins": [str(tmp_path / "own.py")], "task": "causal_lm", "data": {"name": "text"}}
    values["architecture"] = {"name": "gpt2", "layers": 1, "dim": 16, "heads": 2, "attention": "own"}
    own = Recipe.from_dict(values)
    with pytest.raises(UserError, match=r"multiply-adds of recipe aren't known.*svd(.|\n)*match parameters"):
        solve(own, "macs", 1000, 0.01, DATA)
    assert solve(own, "parameters", 4000, 0.01, DATA).residual < 0.01


# What is changed


@pytest.mark.parametrize("architecture", list(TASKS))
@pytest.mark.parametrize("share", [0.9, 1.004, 4.0])
def test_every_architecture_can_be_given_as_many_parameters(architecture: str, share: float) -> None:
    made = recipe(architecture)
    found = solved(made, "parameters", share * counted(made))
    assert counted(found.recipe) == found.reached
    expected = {1.004: set(), 4.0: {"architecture.dim", "architecture.feed_forward.hidden"}}
    assert set(found.overrides) == expected.get(share, {"architecture.feed_forward.hidden"})


@pytest.mark.parametrize(
    ("attention", "position", "feed_forward"),
    [
        ("linear", "learned", "swiglu"),
        ("mamba2", "none", "mlp"),
        ({"name": "grouped_query", "kv_heads": 2}, "alibi", {"name": "swiglu", "hidden": 96}),
        (["multi_head", "retention"], "learned", ["mlp", {"name": "swiglu", "hidden": 50}]),
        ("rwkv7", "none", {"name": "mixture", "experts": 4}),
    ],
    ids=["linear", "mamba2", "grouped_query", "mixed", "rwkv7"],
)
def test_variants_reach_what_another_has(attention: Any, position: str, feed_forward: Any) -> None:
    value = measure(recipe(), "parameters", DATA)
    made = recipe(attention=attention, position=position, feed_forward=feed_forward)
    found = solved(made, "parameters", value)
    assert found.line("it").startswith(f"it: {found.reached:,.0f} parameters, ")


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["linear", ["multi_head", "sliding_window"]], ids=["linear", "mixed"])
def test_multiply_adds_are_matched(attention: Any) -> None:
    value = measure(recipe(), "macs", DATA)
    found = solved(recipe(attention=attention, layers=3), "macs", value)
    assert counts(found.recipe, DATA)["macs"] == found.reached


def test_sizes_that_a_rule_gives_are_written_down_where_the_width_changes() -> None:
    found = solved(recipe(feed_forward=["mlp", "swiglu"]), "parameters", 90_000)
    assert found.overrides.keys() == {
        "architecture.dim",
        "architecture.feed_forward.0.hidden",
        "architecture.feed_forward.1.hidden",
    }
    first, second = (found.overrides[f"architecture.feed_forward.{place}.hidden"] for place in (0, 1))
    assert second / first == pytest.approx(88 / 128, rel=0.02)  # 8/3 of 32, up to a multiple of 8


def test_the_head_size_stays_one_that_the_positions_can_rotate() -> None:
    found = solved(recipe(position="rotary", heads=2, dim=36), "parameters", 100_000)
    assert found.overrides["architecture.dim"] % 4 == 0


@pytest.mark.slow
def test_a_cache_is_matched_by_the_size_of_heads_then_by_the_width_then_by_their_number() -> None:
    def key_value_bytes(elements: int) -> int:
        return 2 * 2 * elements * 4

    assert solved(recipe(), "cache_bytes", key_value_bytes(40)).overrides == {"architecture.attention.size": 10}
    rotary = solved(recipe(position="rotary"), "cache_bytes", key_value_bytes(48))
    assert rotary.overrides == {"architecture.attention.size": 12}
    found = solved(recipe(), "cache_bytes", key_value_bytes(39))
    assert (found.overrides["architecture.dim"], found.overrides["architecture.heads"]) == (39, 3)
    assert found.residual == 0


@pytest.mark.slow
def test_a_state_is_matched_by_the_attention_and_the_model_stays_as_wide() -> None:
    linear, delta = recipe(attention="linear"), recipe(attention="delta_net")
    value = measure(delta, "state", DATA)
    found = solved(linear, "state", value, 0.2)
    assert set(found.overrides) == {"architecture.attention.size"}
    window = solved(recipe(attention={"name": "sliding_window", "window": 5, "size": 8}), "state", 2 * 9 * 2 * 32 * 4)
    assert window.overrides == {"architecture.attention.window": 9}


# What is refused


def test_a_refusal_names_the_nearest_values_on_both_sides() -> None:
    """Of a GPT-2 without positions: V D + L (4 D^2 + 2 D H + H + 9 D) + 2 D parameters, over all widths and sizes."""

    def formula(dim: int, hidden: int) -> int:
        return 50 * dim + 2 * (4 * dim**2 + 2 * dim * hidden + hidden + 9 * dim) + 2 * dim

    made = recipe(position="none", dim=8, heads=1, feed_forward={"name": "mlp", "hidden": 16})
    assert measure(made, "parameters", DATA) == formula(8, 16)
    values = {formula(dim, hidden) for dim in range(1, 60) for hidden in range(dim, 4 * dim + 1)}
    value = next(n + 0.5 for n in range(3000, 4000) if not {n, n + 1} & values)
    below, above = max(n for n in values if n < value), min(n for n in values if n > value)
    with pytest.raises(UserError) as error:
        solve(made, "parameters", value, 1e-6, DATA)
    assert f"{below:,} below it (" in str(error.value) and f"{above:,} above it (" in str(error.value)


def test_what_nothing_changes_is_refused() -> None:
    with pytest.raises(UserError, match=r"state can't be brought within 0.01 of 1,000; .*nothing above it"):
        solve(recipe(), "state", 1000, 0.01, DATA)


def test_sizes_without_a_model_are_no_answer() -> None:
    """Two heads of keys and values have an even number of elements, whatever the width and the number of heads."""
    grouped = recipe(attention={"name": "grouped_query", "kv_heads": 2}, heads=2)
    with pytest.raises(UserError, match=r"384 below it \(.*\) and 416 above it"):
        solve(grouped, "cache_bytes", 2 * 2 * 25 * 4, 0.001, DATA)


def test_a_second_task_of_the_same_sizes_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = solve(recipe(), "parameters", 60_000, 0.01, DATA)
    calls: list[str] = []

    def watched(made: Recipe, quantity: str, description: Description | None) -> float:
        calls.append(quantity)
        return measure(made, quantity, description)

    monkeypatch.setattr(match, "measure", watched)
    assert solve(recipe(), "parameters", 60_000, 0.01, DATA).overrides == first.overrides
    assert len(calls) <= 8  # whether there is such a quantity at all, and the sizes that a rule gives


# Any recipe


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_small_recipe_is_matched_or_refused_with_neighbours(data: st.DataObject) -> None:
    heads = data.draw(st.sampled_from([1, 2, 4]))
    attention = data.draw(st.sampled_from(["multi_head", "linear", "delta_net", "latent", "retention", "based"]))
    made = recipe(
        attention=attention,
        layers=1,
        heads=heads,
        dim=heads * data.draw(st.sampled_from([4, 6, 8])),
        position=data.draw(st.sampled_from(["none", "learned"])),
        feed_forward=data.draw(st.sampled_from(["mlp", "swiglu", {"name": "mlp", "hidden": 20}])),
    )
    value = measure(made, "parameters", DATA) * data.draw(st.floats(0.4, 5))
    try:
        solved(made, "parameters", value)
    except UserError as error:
        assert "can't be brought within 0.01" in str(error)
        _check_neighbours(made, str(error), value)


def _check_neighbours(made: Recipe, message: str, value: float) -> None:
    """Both are what a model with the sizes that are named has, and none with one hidden unit more or less is nearer."""
    for side in ("below", "above"):
        if f"nothing {side} it" in message:
            continue
        number, said = message.split(f" {side} it (")[0].split()[-1], message.split(f" {side} it (")[1].split(")")[0]
        reached = float(number.replace(",", ""))
        named = made.with_overrides(*([] if said == "as it is" else said.split(", ")))
        assert measure(named, "parameters", DATA) == reached
        assert (reached <= value) == (side == "below")
        assert abs(reached - value) > 0.01 * value
