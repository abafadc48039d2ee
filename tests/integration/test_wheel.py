"""What is in the wheel, and that it works where there is no checkout."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SHORT = (
    "trainer.max_steps=2",
    "schedule.warmup_steps=0",
    "training.validate_batches=1",
    "data.tokenizer=byte",
    "data.batch_size=2",
    "architecture.layers=2",
)
"""Overrides that make five minutes a few seconds."""


def contents(wheel: Path) -> set[str]:
    """Files of a wheel without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def expected(tree: Path) -> set[str]:
    """Every module, recipe and marker of the tree, under the name that it has once it is installed."""
    folders = {
        tree / "zoo": "zoo",
        tree / "plugins/zoo_builtin": "zoo_builtin",
        tree / "recipes": "zoo_builtin/recipes",
    }
    wanted = ("*.py", "*.yaml", "py.typed", "page.css", "page.js", "matrix.json")
    return {
        f"{name}/{file.relative_to(folder).as_posix()}"
        for folder, name in folders.items()
        for pattern in wanted
        for file in folder.rglob(pattern)
    }


def test_the_wheel_holds_every_module_and_recipe_and_nothing_else(tree: Path, wheel: Path) -> None:
    assert contents(wheel) == expected(tree)
    assert {"zoo/py.typed", "zoo_builtin/py.typed", "zoo_builtin/recipes/preset/gpt2.yaml"} <= contents(wheel)


def test_the_wheel_has_two_top_level_packages(wheel: Path) -> None:
    assert {name.split("/")[0] for name in contents(wheel)} == {"zoo", "zoo_builtin"}


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name.split("/", 1)[1]: name for name in archive.namelist() if ".dist-info/" in name}
        about = message_from_bytes(archive.read(files["METADATA"]))
        entry_points = archive.read(files["entry_points.txt"]).decode()
    assert about["Name"] == "transformer-zoo"
    assert about["License-Expression"] == "Apache-2.0"
    assert "licenses/LICENSE" in files
    assert "[console_scripts]\nzoo = zoo.cli:main\n" in entry_points
    assert "[zoo]\nbuiltin = zoo_builtin\n" in entry_points


def test_a_wheel_built_from_the_source_distribution_is_the_same(
    tree: Path, wheel: Path, build_wheel: Callable[[Path], Path], tmp_path: Path
) -> None:
    build = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=tree, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(tmp_path, filter="data")
    assert contents(build_wheel(tmp_path / archive.name.removesuffix(".tar.gz"))) == contents(wheel)


@pytest.fixture(scope="module")
def environment(make_environment: Callable[..., Any], wheel: Path) -> Any:
    return make_environment(wheel)


LOAD_ALL = """
import sys
from zoo.recipe import load_comparison, load_recipe

own = {"vaswani_base_parallel": ["data.files=[a.tsv]"], "vit_small_imagefolder": ["data.root=a"]}
own["vit_base_imagefolder"], own["gpt2_small"] = own["vit_small_imagefolder"], own["vaswani_base_parallel"]
for name in sys.argv[1:]:
    load_comparison(name) if name.startswith(("compare/", "scale/")) else load_recipe(name, own.get(name, ()))
"""
"""Recipes for data of one's own are told where it is."""


class TestInstalled:
    """From a folder that has nothing to do with the checkout."""

    def test_it_is_the_installed_package_that_runs(self, environment: Any, tmp_path: Path) -> None:
        program = "import zoo, zoo_builtin; print(zoo.__file__); print(zoo_builtin.__file__)"
        for file in environment.run("python", "-c", program, cwd=tmp_path).splitlines():
            assert Path(file).is_relative_to(environment.folder)

    def test_listing_finds_every_component_file(self, environment: Any, wheel: Path, tmp_path: Path) -> None:
        records = json.loads(environment.run("zoo", "list", "--json", cwd=tmp_path))
        listed = {f"zoo_builtin/{record['kind']}/{record['name']}.py" for record in records}
        files = {name for name in contents(wheel) if name.count("/") == 2 and name.startswith("zoo_builtin/")}
        assert listed == {name for name in files if name.endswith(".py") and not name.endswith("__init__.py")}
        assert {record["status"] for record in records} == {"ok"}
        assert {record["provider"] for record in records} == {"transformer-zoo"}

    def test_the_default_recipe_is_found_by_name(self, environment: Any, tmp_path: Path) -> None:
        recipe = json.loads(environment.run("zoo", "show", "gpt2_text", "--json", cwd=tmp_path))
        assert recipe["architecture"]["name"] == "gpt2"
        assert recipe["data"]["name"] == "text"
        assert list(tmp_path.iterdir()) == []

    def test_the_readme_s_training_command_trains(self, environment: Any, tree: Path, tmp_path: Path) -> None:
        readme = (tree / "README.md").read_text()
        block = re.search(r"^<!-- train -->\n```bash\n(.+?)^```$", readme, re.MULTILINE | re.DOTALL)
        assert block
        program, *arguments = block[1].strip().rpartition("&& ")[2].split()
        assert program == ".venv/bin/zoo"
        said = environment.run("zoo", *arguments, *SHORT, "--json", cwd=tmp_path)
        assert json.loads(said)["status"] == "completed"
        assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["gpt2_text-1"]

    def test_every_recipe_is_found_by_name(self, environment: Any, wheel: Path, tmp_path: Path) -> None:
        prefix = "zoo_builtin/recipes/"
        files = {name.removeprefix(prefix) for name in contents(wheel) if name.startswith(prefix)}
        names = [name.removesuffix(".yaml") for name in sorted(files) if not name.startswith(("_base/", "verify/"))]
        assert {"gpt2_text", "preset/gpt2", "compare/parts"} <= set(names)
        environment.run("python", "-c", LOAD_ALL, *names, cwd=tmp_path)
        assert "mqar" in environment.run("zoo", "verify", "--list", cwd=tmp_path)
