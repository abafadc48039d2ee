"""Properties of recipes over generated ones: saving loses nothing, overrides apply in order, garbage is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recipe_parts import MINIMAL, SmallRegistry
from zoo.errors import UserError
from zoo.recipe import Recipe, load_recipe
from zoo.recipe.interpolation import literal
from zoo.recipe.node import Origin, dotted, split_path
from zoo.recipe.source import read_text, write_text

fixed = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

REGISTRY: Any = SmallRegistry()
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)
words = st.text(st.characters(codec="utf-8"), max_size=8).filter(lambda text: text != "???").map(literal)
numbers = st.floats(allow_nan=False)

attentions = st.one_of(
    st.just("multi_head"),
    st.fixed_dictionaries({"name": st.just("grouped_query")}, optional={"kv_heads": st.integers()}),
    st.fixed_dictionaries({"name": st.just("window"), "window": st.integers()}),
    st.fixed_dictionaries({}, optional={"scale": st.none() | numbers, "kernel": st.sampled_from(["auto", "sdpa"])}),
)
recipes = st.fixed_dictionaries(
    {
        "data": st.fixed_dictionaries({"name": st.just("text")}, optional={"source": words, "length": st.integers()}),
        "architecture": st.fixed_dictionaries(
            {"name": st.just("gpt2"), "attention": attentions | st.lists(attentions, min_size=1, max_size=3)},
            optional={
                "layers": st.integers(min_value=1) | st.just("${data.length}"),
                "label": words,
                "side": st.sampled_from(["left", "right"]),
                "sizes": st.lists(numbers, max_size=3),
                "extra": st.dictionaries(st.text(min_size=1).filter(lambda key: "${" not in key), numbers, max_size=3),
                "start": words | numbers,
                "seed_of": st.just("${seed}") | st.lists(st.booleans() | st.integers(), max_size=2),
            },
        ),
        "task": st.just("causal_lm"),
    },
    optional={"seed": st.integers(0, 2**32 - 1), "trainer": st.fixed_dictionaries({"max_steps": st.integers(1)})},
)


def composed(values: dict[str, Any]) -> Recipe | None:
    """The recipe, or nothing if its data is shorter than one layer."""
    try:
        return Recipe.from_dict(values, registry=REGISTRY)
    except UserError as error:
        assert "layers is" in str(error)
        return None


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("recipes") / "a.yaml"


@pytest.mark.slow
@settings(fixed, max_examples=60)
@given(values=recipes)
def test_a_saved_recipe_loads_as_the_same_tree(file: Path, values: dict[str, Any]) -> None:
    recipe = composed(values)
    if recipe:
        file.write_text(recipe.to_yaml(), encoding="utf-8")
        again = load_recipe(file, registry=REGISTRY)
        assert again.tree == recipe.tree
        assert again.to_yaml() == recipe.to_yaml()
        assert recipe.diff(again) == []


overrides = st.lists(
    st.sampled_from(
        [
            "architecture.attention=grouped_query",
            "architecture.attention=multi_head",
            "architecture.attention={bias: false}",
            "architecture.attention.bias=false",
            "architecture.attention.bias=true",
            "architecture.attention=[multi_head, grouped_query]",
            "architecture={dim: 3}",
            "architecture.dim=4",
            "architecture.extra.b=5",
            "architecture.sizes=[1]",
            "architecture.sizes=[]",
            "seed=1",
            "seed=2",
            "trainer.strategy=ddp",
            "trainer.strategy.data=2",
            "trainer.strategy=fsdp2",
        ]
    ),
    max_size=5,
)


@pytest.mark.slow
@settings(fixed, max_examples=40)
@given(several=overrides)
def test_overrides_at_once_are_overrides_one_by_one(file: Path, several: list[str]) -> None:
    file.write_text(MINIMAL, encoding="utf-8")
    try:
        recipe = load_recipe(file, registry=REGISTRY)
        for override in several:
            recipe = recipe.with_overrides(override)
    except UserError:
        return
    assert load_recipe(file, several, registry=REGISTRY).tree == recipe.tree


@given(first=st.integers(1, 99), last=st.integers(1, 99))
@settings(fixed, max_examples=10)
def test_the_last_override_of_a_key_wins(file: Path, first: int, last: int) -> None:
    file.write_text(MINIMAL, encoding="utf-8")
    recipe = load_recipe(file, [f"architecture.dim={first}", f"architecture.dim={last}"], registry=REGISTRY)
    assert recipe.config("architecture").dim == last


def refused_or_composed(file: Path, *assignments: str) -> None:
    try:
        recipe = load_recipe(file, assignments, registry=REGISTRY)
    except UserError as error:
        assert str(error)
    else:
        assert recipe.tree["architecture"]["name"]


@settings(fixed, max_examples=100)
@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    refused_or_composed(file)


MARKS = ": |:|\n|\n  |\n- |- |{|}|[|]|, |&a |*a|<<: |? |> |'|\"|#|!!|!x |%|---\n|...\n|\t|${|\ufeff|\x85|\u2028"
WORDS = "${data.name}|???|0o7|010|1e3|no|~|null|.inf|base|plugins|trainer|seed|data|architecture|name|gpt2|text"
fragments = st.sampled_from([*MARKS.split("|"), *WORDS.split("|"), "| "])


@settings(fixed, max_examples=300)
@given(text=st.lists(fragments, max_size=30).map("".join))
def test_random_yaml_is_refused(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    refused_or_composed(file)


keys = (
    st.sampled_from(["name", "attention", "layers", "label", "sizes", "extra", "data", "0", "a.b", "${seed}"])
    | st.text()
)
values = st.recursive(
    scalars | st.sampled_from(["gpt2", "text", "multi_head", "???", "${seed}", "${", "${architecture}", "${.name}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=15,
)
sections = st.sampled_from(
    ["data", "architecture", "task", "optimizer", "training", "trainer", "logger", "seed", "plugins"]
)


@settings(fixed, max_examples=200)
@given(changes=st.dictionaries(sections | st.text(), values, max_size=4), whole=st.booleans())
def test_random_documents_are_refused(changes: dict[str, Any], whole: bool) -> None:
    start = {"data": "text", "architecture": "gpt2", "task": "causal_lm"} if whole else {}
    try:
        recipe = Recipe.from_dict({**start, **changes}, registry=REGISTRY)
        recipe.to_yaml()
        recipe.explain()
    except UserError as error:
        assert str(error)


@settings(fixed, max_examples=150)
@given(key=st.lists(keys | sections, min_size=1, max_size=3), value=st.text(max_size=12) | fragments)
def test_random_overrides_are_refused(file: Path, key: list[str], value: str) -> None:
    file.write_text(MINIMAL, encoding="utf-8")
    refused_or_composed(file, f"{'.'.join(key)}={value}")


@settings(fixed, max_examples=200)
@given(tree=st.dictionaries(st.text(), anything, max_size=4))
def test_what_is_written_is_read_as_it_was(tree: dict[str, Any]) -> None:
    node = read_text(write_text(tree), lambda line, text: Origin("recipe", line=line, text=text))
    assert repr(node.plain()) == repr(tree)


def test_numbers_that_are_none_survive_writing() -> None:
    node = read_text(write_text({"a": math.nan, "b": -math.inf, "c": 1e-5, "d": "1e-5"}), lambda *_: Origin("recipe"))
    assert repr(node.plain()) == "{'a': nan, 'b': -inf, 'c': 1e-05, 'd': '1e-5'}"


@settings(fixed, max_examples=200)
@given(path=st.lists(st.text(min_size=1).filter(lambda key: not set(key) & set("[]")), min_size=1, max_size=4))
def test_a_key_path_is_read_as_it_was_written(path: list[str]) -> None:
    assert split_path(dotted(tuple(path))) == tuple(path)
