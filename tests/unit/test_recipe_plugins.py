"""Recipes over the real registry: built-in components, presets, and plugins that a recipe names by path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zoo.errors import UserError
from zoo.recipe import Recipe, load_recipe
from zoo.recipe.find import RecipeFolders
from zoo.registry import Registry

MINE = '''"""Half of the learning rate, always."""

import dataclasses

from zoo.contracts.schedule import Schedule

__all__ = ["Mine"]


class Mine(Schedule):
    """Half."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Schedule.Config):
        """Knobs."""

        part: float = 0.5
        """Factor."""

    def after_warmup(self, step):
        return self.config.part
'''
RECIPE = "data: text\narchitecture: {name: gpt2, layers: 2, dim: 32, heads: 2}\ntask: causal_lm\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Recipes that use a plugin file, which lies beside their folder."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "recipes" / "plain.yaml").write_text(RECIPE, encoding="utf-8")
    (tmp_path / "recipes" / "mine.yaml").write_text(
        "base: plain.yaml\nplugins: [../mine.py]\nschedule: {name: mine, part: 0.25}\n", encoding="utf-8"
    )
    return tmp_path


def check(recipe: Recipe, file: Path) -> None:
    assert recipe.component("schedule").file == file
    assert recipe.config("schedule").part == 0.25
    assert recipe.plugins == [file]


def test_a_plugin_is_named_relative_to_the_recipe_and_saved_absolute(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    recipe = load_recipe(folder / "recipes" / "mine.yaml")
    check(recipe, folder / "mine.py")
    run = folder / "run"
    run.mkdir()
    (run / "recipe.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    again = load_recipe(run)
    check(again, folder / "mine.py")
    assert again.tree == recipe.tree
    assert again.lock()["components"]["schedule/mine"]["provider"] == "mine.py"


def test_a_plugin_can_be_given_beside_the_recipe(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    overrides = ["schedule={name: mine, part: 0.25}"]
    plain = folder / "recipes" / "plain.yaml"
    check(load_recipe(plain, overrides, plugins=["mine.py"]), folder / "mine.py")
    check(load_recipe(plain, ["plugins=[./mine.py]", *overrides]), folder / "mine.py")
    check(load_recipe(plain, overrides, registry=Registry.discover(["mine.py"])), folder / "mine.py")
    monkeypatch.setenv("ZOO_PLUGINS", os.fspath(folder / "mine.py"))
    check(load_recipe(plain, overrides), folder / "mine.py")
    assert load_recipe(plain).plugins == []


def test_a_plugin_that_is_not_there_is_named_with_the_place_that_says_so(folder: Path) -> None:
    (folder / "mine.py").unlink()
    with pytest.raises(UserError) as error:
        load_recipe(folder / "recipes" / "mine.yaml")
    assert str(folder / "mine.py") in str(error.value) and "mine.yaml:2 (plugins)" in str(error.value)


def test_an_unknown_component_of_the_real_registry_has_near_names(folder: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'grouped_query'") as error:
        load_recipe(folder / "recipes" / "plain.yaml", ["architecture.attention=grouped_qery"])
    assert "override 1" in str(error.value)


def test_every_installed_recipe_and_preset_composes() -> None:
    registry = Registry.discover()
    names = RecipeFolders(registry).names()
    assert "preset/gpt2-medium" in names
    given = {name: ["data.files=[a.tsv]"] for name in ("vaswani_base_parallel", "gpt2_small")}
    given |= {name: ["data.root=images"] for name in ("vit_small_imagefolder", "vit_base_imagefolder")}
    for name in names:
        recipe = load_recipe(name, given.get(name, ()), registry=registry)
        assert recipe.component("architecture").kind == "architecture"
    assert load_recipe("gpt2-medium", registry=registry).config("architecture").layers == 24
