"""The conventions of CONTRIBUTING.md that a machine can check: who imports whom, what is light, what is where."""

from __future__ import annotations

import ast
import functools
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from zoo.component import KINDS, Component, contract
from zoo.config import Part, knobs
from zoo.registry import Registry

ROOT = Path(__file__).parents[2]
FRAME = ROOT / "zoo"
BUILTIN = ROOT / "plugins" / "zoo_builtin"
EXAMPLE = ROOT / "plugins" / "zoo_example" / "zoo_example"

ORDER = (
    "errors",
    "config",
    "initialization",
    "contracts",
    "nn",
    "data",
    "generation",
    "component",
    "hookspecs",
    "outside",
    "scan",
    "hooks",
    "registry",
    "recipe",
    "builder",
    "info",
    "testing",
    "training",
    "matrix",
    "comparison",
    "report",
    "scaling",
    "verification",
    "api",
    "cli",
    "__main__",
)
"""Rooms of the frame. Each imports only from rooms above it, so there are no circles and no two-way pairs."""

LEAVES = {
    "errors": set(),
    "config": set(),
    "initialization": set(),
    "contracts": {"config", "errors", "initialization"},
    "nn": {"config", "contracts", "errors", "initialization"},
    "data": {"config", "contracts", "errors"},
    "generation": {"config", "contracts", "errors", "initialization"},
    "component": {"config", "errors"},
}
"""Rooms that may import still less: none of them knows the registry or a recipe."""

COMPONENT_IMPORTS = {"contracts", "nn", "config", "errors", "initialization"}
DATA_IMPORTS = COMPONENT_IMPORTS | {"data"}
"""What component files may import of the frame; those of data, tokenizers and tasks share ``zoo.data``."""

LIGHT = ("zoo", "zoo.errors", "zoo.config", "zoo.component", "zoo.hookspecs", "zoo.registry", "zoo.recipe", "zoo.cli")
HEAVY = ("torch", "lightning", "pytorch_lightning", "torchvision", "timm", "sklearn", "scipy", "matplotlib", "pyarrow")
HEAVY += ("zoo_builtin",)

DISTRIBUTIONS = {"PIL": "pillow", "yaml": "pyyaml", "sklearn": "scikit-learn", "tiktoken_ext": "tiktoken"}
"""Import names that differ from the name of their distribution."""


def sources(*folders: Path) -> list[Path]:
    return sorted(file for folder in folders for file in folder.rglob("*.py"))


def relative(file: Path) -> str:
    return str(file.relative_to(ROOT))


def dotted(file: Path) -> str:
    """``zoo.contracts.values.mask`` of a file of the frame; a package's own name for its ``__init__``."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports(file: Path) -> frozenset[tuple[int, str]]:
    """Line and full name of everything a file imports, inside functions and for type checkers too."""
    found = set()
    for node in ast.walk(ast.parse(file.read_bytes(), filename=str(file))):
        if isinstance(node, ast.Import):
            found |= {(node.lineno, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{relative(file)}:{node.lineno}: relative import"
            found |= {(node.lineno, f"{node.module}.{alias.name}") for alias in node.names}
    return frozenset(found)


def room(module: str) -> str | None:
    """The room of the frame that a module belongs to: ``zoo.contracts.values.mask`` → ``contracts``."""
    inner = module.removeprefix("zoo").removeprefix(".")
    fitting = [name for name in ORDER if inner == name or inner.startswith(f"{name}.")]
    return max(fitting, key=len, default=None)


def frame_imports(file: Path) -> Iterator[tuple[str, str]]:
    """Place and room of each import of the frame."""
    for line, name in sorted(imports(file)):
        if name == "zoo" or name.startswith("zoo."):
            target = room(name)
            assert target, f"{relative(file)}:{line}: {name} is in no room of ORDER; only users import zoo itself"
            yield f"{relative(file)}:{line}", target


FRAME_FILES = [file for file in sources(FRAME) if file != FRAME / "__init__.py"]
COMPONENT_FILES = [file for file in sources(BUILTIN) if file.parent != BUILTIN and file.name != "__init__.py"]
ALL_FILES = sources(FRAME, ROOT / "plugins", ROOT / "tests", ROOT / "benchmarks", ROOT / "docs")


@pytest.mark.parametrize("file", FRAME_FILES, ids=relative)
def test_arrows_of_the_frame_point_one_way(file: Path) -> None:
    own = room(dotted(file))
    assert own, f"{relative(file)} is in no room; say in ORDER where it belongs"
    for place, target in frame_imports(file):
        if target == own:
            continue
        assert ORDER.index(target) < ORDER.index(own), f"{place}: {own} must not import {target}"
        assert target in LEAVES.get(own, ORDER), f"{place}: {own} must not import {target}"


@pytest.mark.parametrize("file", sources(FRAME), ids=relative)
def test_the_frame_knows_no_plugin(file: Path) -> None:
    plugins = [
        f"{line}: {name}" for line, name in imports(file) if name.split(".")[0] in ("zoo_builtin", "zoo_example")
    ]
    assert not plugins, f"{relative(file)} imports {plugins}"


@pytest.mark.parametrize("file", COMPONENT_FILES, ids=relative)
def test_components_import_contracts_and_leaves_only(file: Path) -> None:
    allowed = DATA_IMPORTS if file.parent.name in ("data", "tokenizer", "task") else COMPONENT_IMPORTS
    others = [name for _, name in imports(file) if name.split(".")[0] == "zoo_builtin"]
    assert not others, f"{relative(file)} imports other components: {others}"
    for place, target in frame_imports(file):
        assert target in allowed, f"{place}: a component must not import zoo.{target}"


def test_light_modules_import_no_heavy_library() -> None:
    program = f"""
import importlib, sys
for name in {LIGHT!r}:
    importlib.import_module(name)
    heavy = [library for library in {HEAVY!r} if library in sys.modules]
    if heavy:
        sys.exit(f"importing {{name}} imports {{', '.join(heavy)}}")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_every_third_party_import_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    declared = {re.split(r"[^\w-]", name)[0].lower() for name in [*project["dependencies"], *extras]}
    known = {*sys.stdlib_module_names, "zoo", "zoo_builtin"}
    for file in sources(FRAME, BUILTIN):
        for line, name in imports(file):
            top = name.split(".")[0]
            distribution = DISTRIBUTIONS.get(top, top).lower()
            assert top in known or distribution in declared, f"{relative(file)}:{line}: {top} isn't in pyproject.toml"


@pytest.mark.parametrize("folder", [FRAME, BUILTIN, EXAMPLE], ids=relative)
def test_every_folder_of_a_package_is_a_package(folder: Path) -> None:
    bare = {file.parent for file in sources(folder) if not (file.parent / "__init__.py").exists()}
    assert not bare, f"no __init__.py in {sorted(map(relative, bare))}, so a wheel would leave them out"


@pytest.mark.parametrize("folder", [BUILTIN, EXAMPLE], ids=relative)
def test_folders_of_a_plugin_are_kinds_with_an_empty_init(folder: Path) -> None:
    folders = {file.parent for file in sources(folder)} - {folder}
    assert folders
    for inner in folders:
        assert inner.name in KINDS, f"{relative(inner)} is no kind"
        assert not (inner / "__init__.py").read_bytes(), f"{relative(inner)}/__init__.py isn't empty"


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_of_contracts_holds_the_contract_of_a_kind(kind: str) -> None:
    assert issubclass(contract(kind), Part)
    assert contract(kind).__module__ == f"zoo.contracts.{kind}"


@pytest.mark.parametrize("file", ALL_FILES, ids=relative)
def test_files_are_short_and_named_for_what_they_hold(file: Path) -> None:
    lines = len(file.read_text().splitlines())
    assert lines <= 400, f"{relative(file)} has {lines} lines; 400 is the most"
    assert not {"utils", "util", "helpers", "misc"} & set(file.relative_to(ROOT).with_suffix("").parts)


@functools.cache
def components() -> list[Component]:
    registry = Registry.discover(environment={})
    registry.load_plugins()
    return registry.components()


def test_every_component_file_is_listed_and_sound() -> None:
    broken = [record.error for record in components() if record.status != "ok"]
    assert not broken
    listed = {record.file for record in components()}
    assert set(COMPONENT_FILES) <= listed


def test_every_config_field_has_a_docstring() -> None:
    for record in components():
        if record.kind != "plugin":
            bare = [knob.name for knob in knobs(record.load().Config) if not knob.text]
            assert not bare, f"{record.title}: no docstring under {', '.join(bare)}"


def test_a_test_cannot_reach_another_machine() -> None:
    with socket.socket() as connection, pytest.raises(RuntimeError, match=r"192\.0\.2\.1; tests use no network"):
        connection.connect(("192.0.2.1", 80))  # an address that is kept free for documentation


def test_readme_has_one_command_to_train_and_one_to_test() -> None:
    readme = (ROOT / "README.md").read_text()
    for mark in ("train", "test"):
        blocks = re.findall(rf"^<!-- {mark} -->\n```bash\n(.+?)^```$", readme, re.MULTILINE | re.DOTALL)
        assert len(blocks) == 1, f"README.md has {len(blocks)} blocks marked <!-- {mark} -->"
        assert readme.count(f"<!-- {mark} -->") == 1


def test_contributing_explains_every_marker() -> None:
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    missing = [name for name in (re.split(r"[:(]", marker)[0] for marker in markers) if f"`{name}`" not in contributing]
    assert not missing
