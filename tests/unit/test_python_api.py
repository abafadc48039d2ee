"""``import zoo`` from Python: light, complete, and the same as the commands."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

import zoo
from zoo.generation import continue_texts
from zoo.registry import Registry

RECIPE = {
    "data": {"name": "text", "tokenizer": "byte", "length": 16, "batch_size": 2},
    "architecture": {"name": "gpt2", "layers": 1, "dim": 16, "heads": 2},
    "task": "causal_lm",
}


def test_importing_the_zoo_imports_nothing_heavy() -> None:
    code = "import sys, zoo; zoo.__version__; zoo.UserError; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "lightning", "omegaconf", "numpy", "click", "pluggy", "yaml"} & set(done.stdout.split())


def test_the_interface_is_these_names() -> None:
    names = [
        "UserError",
        "build",
        "compare",
        "components",
        "evaluate",
        "generate",
        "load",
        "load_recipe",
        "predict",
        "train",
    ]
    assert sorted(zoo.__all__) == names
    assert sorted(dir(zoo)) == sorted([*names, "__version__"])


@pytest.mark.parametrize("name", zoo.__all__)
def test_every_name_is_there_and_says_what_it_does(name: str) -> None:
    found = getattr(zoo, name)
    assert callable(found) and found.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'zoo' has no attribute 'trian'"):
        zoo.trian  # noqa: B018


def test_the_version_is_that_of_the_distribution() -> None:
    assert zoo.__version__ == metadata.version("transformer-zoo")


def test_components_are_those_of_the_registry() -> None:
    assert zoo.components("position") == Registry.discover().components("position")


def recipe() -> object:
    from zoo.recipe import Recipe

    return Recipe.from_dict(RECIPE)


def test_build_makes_the_model_of_a_recipe() -> None:
    model = zoo.build(recipe())
    assert model.head.weight.shape == (257, 16)  # the vocabulary came from the data
    assert model.max_length == 16


def test_a_model_whose_sizes_are_given_leaves_the_data_alone() -> None:
    overrides = ["architecture.vocab_size=50", "architecture.max_length=9", "data.source=files", "data.files=[nowhere]"]
    assert zoo.build(zoo.load_recipe("gpt2", [*overrides, "architecture.layers=1"])).max_length == 9


def test_data_that_a_size_must_come_from_has_to_be_there() -> None:
    from zoo.recipe import Recipe

    with pytest.raises(zoo.UserError, match="nowhere"):
        zoo.build(Recipe.from_dict(RECIPE, ["data.source=files", "data.files=[nowhere.txt]"]))


def test_generate_takes_a_loaded_run_and_does_what_the_command_does() -> None:
    from zoo_builtin.tokenizer.byte import Byte

    loaded = SimpleNamespace(model=zoo.build(recipe()), tokenizer=Byte(Byte.Config()))
    options = {"max_new_tokens": 6, "seed": 2}
    assert zoo.generate(loaded, ["ab", "c"], **options) == continue_texts(loaded, ["ab", "c"], **options)
    assert [result.prompt for result in zoo.generate(loaded, max_new_tokens=2)] == [""]
