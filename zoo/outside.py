"""Modules of plugins that are given by path: ``zoo.outside.<name>_<hash of the path>``.

They are imported like any other module, so the same file is the same class everywhere in a process, and a
class pickles by its name. A child process that unpickles it finds the file again through ``ZOO_PLUGINS``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

VARIABLE = "ZOO_PLUGINS"
"""Environment variable that lists files and folders, separated by ``os.pathsep``."""

__path__: list[str] = []  # lets Python look for modules below this one; the finder answers

_paths: dict[str, Path] = {}


def module_name(path: Path) -> str:
    """Name under which a file or folder can be imported in this process from now on, the same in every process."""
    import hashlib  # 5 ms that a listing without such plugins doesn't pay

    path = path.resolve()
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    name = f"{__name__}.{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}_{digest}"
    _paths[name] = path
    return name


def absolute(path: Path) -> Path:
    """The path without ``~`` and ``..``; a file that is a link keeps its own name."""
    path = path.expanduser().absolute()
    return path.resolve() if path.is_dir() else path.parent.resolve() / path.name


def listed(environment: Mapping[str, str]) -> list[Path]:
    """Absolute paths that ``ZOO_PLUGINS`` lists; relative ones start at the working directory."""
    return [absolute(Path(part)) for part in environment.get(VARIABLE, "").split(os.pathsep) if part]


class _Finder(MetaPathFinder):
    """Finds the modules directly below ``zoo.outside``; Python itself finds those below a folder."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.rpartition(".")[0] != __name__:
            return None
        if fullname not in _paths:
            for plugin in listed(os.environ):
                module_name(plugin)
        location = _paths.get(fullname)
        return _spec(fullname, location) if location else None


def _spec(name: str, location: Path) -> ModuleSpec | None:
    if not location.is_dir():
        return spec_from_file_location(name, location)
    init = location / "__init__.py"
    if init.exists():
        return spec_from_file_location(name, init, submodule_search_locations=[str(location)])
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(location)]
    return spec


sys.meta_path.append(_Finder())
