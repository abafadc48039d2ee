"""Where every value of a recipe comes from, and what is saved of it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from recipe_parts import MINIMAL, SmallRegistry, Window, load, write
from zoo.config import Part, Slot
from zoo.errors import UserError
from zoo.recipe import ABSENT, Change, Recipe, load_recipe


def test_every_value_has_an_origin(tmp_path: Path) -> None:
    recipe = load(tmp_path, "optimizer.lr=3e-4", top="base: low\narchitecture:\n  dim: 16\n", low=MINIMAL)
    explained = {path: (value, str(origin)) for path, value, origin in recipe.explain()}
    assert explained["architecture.dim"][0] == 16 and explained["architecture.dim"][1].endswith("top.yaml:3")
    assert explained["architecture.layers"][0] == 2 and explained["architecture.layers"][1].endswith("low.yaml:2")
    assert explained["optimizer.lr"] == (3e-4, "override 1: optimizer.lr=3e-4")
    assert explained["optimizer.name"] == ("adamw", "default of every recipe")
    assert explained["architecture.attention.bias"] == (True, "default of attention multi_head")
    assert explained["trainer.max_steps"] == (1000, "default of trainer")
    assert recipe.where("architecture.dim").endswith("top.yaml:3 (architecture.dim)")
    assert recipe.where("architecture").endswith("top.yaml:2 (architecture)")


def test_secrets_stay_out_of_what_is_saved_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_TEST_SECRET", "hunter2")
    recipe = load(
        tmp_path,
        "data.token=${oc.env:ZOO_TEST_SECRET}",
        "architecture.label=<${data.token}>",
        "architecture.seed_of=${seed}",
        a=MINIMAL,
    )
    assert recipe.config("data").token == "hunter2" and recipe.config("architecture").label == "<hunter2>"
    for text in (recipe.to_yaml(), repr(recipe.shown()), repr(recipe.explain())):
        assert "hunter2" not in text and "${oc.env:ZOO_TEST_SECRET}" in text
    assert repr(recipe) == "Recipe('a')"
    with pytest.raises(UserError) as error:
        recipe.with_overrides("architecture.layers=${data.token}")
    assert "hunter2" not in str(error.value) and "${data.token}" in str(error.value)
    assert recipe.shown()["architecture"]["seed_of"] == 1337
    assert "seed_of: ${seed}" in recipe.to_yaml()


def test_what_is_saved_loads_as_the_same_tree(tmp_path: Path) -> None:
    recipe = load(
        tmp_path,
        "architecture.attention=[multi_head, {name: window, window: 3}]",
        "architecture.label='1e-4'",
        "architecture.start='12:30'",
        "architecture.dropout=${data.length}",
        "trainer.strategy={name: fsdp2, data: 4}",
        a=MINIMAL,
    )
    again = load(tmp_path, b=recipe.to_yaml())
    assert again.tree == recipe.tree and again.to_yaml() == recipe.to_yaml()
    assert again.configs == recipe.configs


def test_an_interpolated_section_is_a_copy_of_another(tmp_path: Path) -> None:
    start = "data: text\ntask: causal_lm\narchitecture: {name: pair, attention: {name: window, window: 5}}\n"
    recipe = load(tmp_path, "architecture.encoder.attention=${architecture.attention}", a=start)
    assert recipe.config("architecture.encoder.attention") == Window.Config(window=5)
    assert "attention: ${architecture.attention}" in recipe.to_yaml()
    assert load(tmp_path, b=recipe.to_yaml()).tree == recipe.tree


def test_a_name_can_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_TEST_NAME", "grouped_query")
    monkeypatch.setenv("ZOO_TEST_DIM", "48")
    recipe = load(
        tmp_path, "architecture.attention=${oc.env:ZOO_TEST_NAME}", "architecture.dim=${oc.env:ZOO_TEST_DIM}", a=MINIMAL
    )
    assert recipe.component("architecture.attention").name == "grouped_query"
    assert recipe.config("architecture").dim == 48


def test_diff_lists_what_changed(tmp_path: Path) -> None:
    old = load(tmp_path, a=MINIMAL)
    new = old.with_overrides("architecture.attention=grouped_query", "optimizer.lr=1")
    assert old.diff(old.with_overrides()) == []
    assert set(old.diff(new)) == {
        Change("optimizer.lr", 0.001, 1.0),
        Change("architecture.attention.name", "multi_head", "grouped_query"),
        Change("architecture.attention.kv_heads", None, 1),
        Change("architecture.attention.scale", None, ABSENT),
        Change("architecture.attention.kernel", "auto", ABSENT),
    }


def test_with_overrides_keeps_where_everything_was_said(tmp_path: Path) -> None:
    recipe = load(tmp_path, "seed=5", a=MINIMAL).with_overrides("architecture.dim=8")
    assert (recipe.seed, recipe.config("architecture").dim) == (5, 8)
    assert str(recipe.origin("seed")) == "override 1: seed=5"
    assert recipe.origin("architecture.layers").line == 2


def test_a_recipe_out_of_python_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = {
        "data": {"name": "text", "files": (Path("t.txt"),)},
        "architecture": {"name": "gpt2", "sizes": (1, 2)},
        "task": "causal_lm",
    }
    recipe = Recipe.from_dict(values, ["seed=2"], registry=SmallRegistry())
    assert recipe.seed == 2 and recipe.config("architecture").sizes == [1.0, 2.0]
    assert recipe.config("data").files == [tmp_path / "t.txt"]
    assert recipe.where("data.files") == "recipe made in Python (data.files)"
    with pytest.raises(UserError, match="can't hold"):
        Recipe.from_dict({**values, "seed": object()}, registry=SmallRegistry())


def test_a_recipe_out_of_python_values_takes_a_base(tmp_path: Path) -> None:
    write(tmp_path, low=MINIMAL)
    recipe = Recipe.from_dict({"base": "low", "seed": 4}, registry=SmallRegistry(tmp_path))
    assert (recipe.seed, recipe.config("architecture").layers) == (4, 2)


def test_the_lock_names_components_and_versions(tmp_path: Path) -> None:
    lock = load(tmp_path, a=MINIMAL).lock()
    assert lock["seed"] == 1337
    assert sorted(lock["components"]) == [
        "architecture/gpt2",
        "attention/multi_head",
        "data/text",
        "optimizer/adamw",
        "position/rotary",
        "schedule/constant",
        "task/causal_lm",
        "tokenizer/byte",
    ]
    record = lock["components"]["attention/multi_head"]
    assert (record["provider"], record["version"], len(record["sha256"])) == ("tests", "1", 64)
    assert lock["packages"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert all(lock["packages"][name] for name in ("torch", "lightning", "omegaconf", "transformer-zoo"))


def test_a_plugin_whose_config_cannot_be_read_is_named(tmp_path: Path) -> None:
    class Clash(Part):
        @dataclasses.dataclass(kw_only=True)
        class Config:
            name: str = "x"

    class Strange(Part):
        @dataclasses.dataclass(kw_only=True)
        class Config:
            thing: Part | None = None

    file = write(tmp_path, a=MINIMAL)
    for part, words in ((Clash, "field 'name'"), (Strange, "OmegaConf can't read its Config")):
        registry = SmallRegistry(classes={**SmallRegistry().classes, ("task", "causal_lm"): part})
        with pytest.raises(UserError, match=words):
            load_recipe(file, registry=registry)


def test_a_part_that_takes_itself_as_a_part_for_ever_is_refused(tmp_path: Path) -> None:
    class Endless(Part):
        slots: ClassVar[Mapping[str, Slot]] = {"inner": Slot("task", "endless")}

    registry = SmallRegistry(classes={**SmallRegistry().classes, ("task", "endless"): Endless})
    with pytest.raises(UserError, match="nested deeper than 20"):
        load_recipe(write(tmp_path, a=MINIMAL.replace("causal_lm", "endless")), registry=registry)


def test_importing_and_loading_recipes_never_imports_torch_or_lightning(tmp_path: Path) -> None:
    file = write(tmp_path, a=MINIMAL)
    code = (
        "import sys; from recipe_parts import SmallRegistry; from zoo.recipe import load_recipe\n"
        f"load_recipe({str(file)!r}, ['trainer.devices=2'], registry=SmallRegistry())\n"
        "print([name for name in ('torch', 'lightning', 'numpy') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "[]\n"
