"""``zoo new``: a working component of any kind with its test, or a whole package around it."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from zoo.component import check_kind, is_name
from zoo.errors import UserError
from zoo.hookspecs import ZOO_API
from zoo.registry import Registry


def new(kind: str, name: str, *, package: bool = False, folder: Path | None = None) -> list[Path]:
    """Write a component that passes ``zoo check`` as it is, and a test that says so.

    Args:
        kind: the kind of component.
        name: its short name: lower case letters, digits and underscores.
        package: write a distribution with an entry point instead of two files.
        folder: where to write; the working directory by default.

    Returns:
        The files that were written, the component first.

    Raises:
        UserError: an unknown kind, a name that can't be one or that a component has, a folder that can't be
            written, or a file that is there already; nothing is written then.
    """
    check_kind(kind)
    _check_name(kind, name)
    _refuse_taken(kind, name)
    folder = folder or Path.cwd()
    files = _package(kind, name, folder / f"zoo-{name.replace('_', '-')}") if package else _pair(kind, name, folder)
    _refuse_existing(list(files))
    _write_all(files)
    return list(files)


def _check_name(kind: str, name: str) -> None:
    if not is_name(name) or keyword.iskeyword(name):
        plain = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")
        fix = "use lower case letters, digits and underscores, a letter first"
        usable = is_name(plain) and not keyword.iskeyword(plain)
        raise UserError(f"{name!r} can't name a component", fix=f"{fix}: {plain}" if usable else fix)
    if re.search(rf"\b{class_name(name)}\b", _template(kind)):
        raise UserError(
            f"the class of {name!r} would be {class_name(name)}, which the file imports under that name",
            fix=f"choose another name, for example my_{name}",
        )


def _refuse_taken(kind: str, name: str) -> None:
    """Two components of one name could only be told apart by their providers, in every recipe."""
    names = {record.name: record for record in Registry.discover().components(kind)}
    if name in names:
        taken = names[name]
        free = f"my_{name}"
        while free in names:
            free = f"my_{free}"
        raise UserError(
            f"there is {taken.title} already",
            where=str(taken.file or taken.module),
            fix=f"choose another name, for example {free}",
        )


def _refuse_existing(paths: list[Path]) -> None:
    there = [str(path) for path in paths if path.exists()]
    if there:
        raise UserError(f"{', '.join(there)} is there already", fix="choose another name, or remove it first")


def _write_all(files: Mapping[Path, str]) -> None:
    written: list[Path] = []
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for done in written:
            done.unlink(missing_ok=True)
        raise UserError(f"can't write {path}: {error.strerror}", fix="choose a folder that can be written") from error


def class_name(name: str) -> str:
    """``my_attention`` → ``MyAttention``."""
    return "".join(word.capitalize() for word in name.split("_") if word)


def _template(kind: str) -> str:
    return resources.files("zoo.testing.templates").joinpath(f"{kind}.py").read_text(encoding="utf-8")


def _component(kind: str, name: str) -> str:
    return re.sub(r"\bMine\b", class_name(name), _template(kind))


def _pair(kind: str, name: str, folder: Path) -> Mapping[Path, str]:
    test = _TEST.format(target=f'Path(__file__).with_name("{name}.py")', name=name, title=class_name(name))
    return {folder / f"{name}.py": _component(kind, name), folder / f"test_{name}.py": test}


def _package(kind: str, name: str, root: Path) -> Mapping[Path, str]:
    package = f"zoo_{name}"
    inside = root / package
    words = {
        "kind": kind,
        "name": name,
        "package": package,
        "distribution": root.name,
        "title": class_name(name),
        "api": ZOO_API,
        "target": f"{class_name(name)}",
    }
    return {
        inside / kind / f"{name}.py": _component(kind, name),
        root / "tests" / f"test_{name}.py": _PACKAGE_TEST.format_map(words),
        inside / kind / "__init__.py": "",
        inside / "__init__.py": _INIT.format_map(words),
        root / "pyproject.toml": _PYPROJECT.format_map(words),
        root / "README.md": _README.format_map(words),
    }


_TEST = '''"""What ``zoo check {name}.py`` runs, one test for each check."""

from pathlib import Path

from zoo.testing.conformance import Conformance


class Test{title}(Conformance):
    target = {target}
'''

_PACKAGE_TEST = '''"""What ``zoo check {kind}/{name}`` runs, one test for each check."""

from zoo.testing.conformance import Conformance

from {package}.{kind}.{name} import {title}


class Test{title}(Conformance):
    target = {target}
'''

_INIT = '''"""Components for the zoo: one file in ``{package}/KIND/`` is one component."""

zoo_api = {api}
'''

_PYPROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{distribution}"
version = "0.1.0"
description = "{title}, a component for the zoo"
requires-python = ">=3.11"
dependencies = ["transformer-zoo"]

[project.optional-dependencies]
test = ["pytest>=9"]

[project.entry-points.zoo]
{name} = "{package}"

[tool.setuptools.packages.find]
include = ["{package}", "{package}.*"]
"""

_README = """# {distribution}

{kind} `{name}` for the zoo.

```sh
pip install -e '.[test]'
zoo list {kind}
zoo check {kind}/{name}
pytest
```
"""
