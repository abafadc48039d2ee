"""From the word that a user gives to the layers of a recipe: files, names in recipe folders, base chains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from zoo.component import closest, did_you_mean
from zoo.errors import UserError
from zoo.recipe.node import Node, absolute, shown
from zoo.recipe.source import read_file

if TYPE_CHECKING:
    from zoo.registry import Registry

PRESET = "preset"
"""Folder of fragments under names that people know; a recipe in it needn't be complete."""


class RecipeFolders:
    """The folders in which recipes are found by name: those of ``zoo_recipe_paths``."""

    def __init__(self, registry: Registry) -> None:
        self.folders = [Path(folder) for offer in registry.hook.zoo_recipe_paths() for folder in offer]

    def names(self) -> list[str]:
        """Names of all recipes and presets, presets with their folder."""
        return sorted({*self._stems(""), *(f"{PRESET}/{stem}" for stem in self._stems(PRESET))})

    def find(self, name: str, *, presets: bool) -> Path | None:
        """The file of ``gpt2_text``, ``compare/positions``, ``preset/gpt2-medium`` or, if allowed, ``gpt2-medium``.

        Raises:
            UserError: two folders have it.
        """
        if Path(name).is_absolute() or ".." in Path(name).parts:
            return None
        file_name = name if name.endswith(".yaml") else f"{name}.yaml"
        for prefix in ("", PRESET) if presets else ("",):
            files = {(folder / prefix / file_name).resolve() for folder in self.folders}
            existing = sorted(file for file in files if _is_file(file))
            if len(existing) > 1:
                raise UserError(
                    f"{name!r} names several recipes: {', '.join(map(str, existing))}", fix="give the path of one"
                )
            if existing:
                return existing[0]
        return None

    def _stems(self, folder: str) -> Iterator[str]:
        for root in self.folders:
            yield from (file.stem for file in (root / folder).glob("*.yaml") if file.is_file())


def find_recipe(source: str | Path, folders: RecipeFolders) -> Path:
    """The file that a user means by a path, by a run folder, or by a name.

    Raises:
        UserError: there is none; says where it was looked for, near names and the whole list.
    """
    path = absolute(str(source), Path.cwd())
    inside = path / "recipe.yaml"
    for candidate in (inside, path):
        if _is_file(candidate):
            return candidate
    if found := folders.find(str(source), presets=True):
        return found
    names = folders.names()
    short = [name.removeprefix(f"{PRESET}/") for name in names]
    here = {file.stem: shown(file) for file in path.parent.glob("*.yaml")}
    near = [here.get(name, name) for name in closest(path.stem, [*short, *here])]
    raise UserError(
        f"there is no recipe {str(source)!r}" + (f"; did you mean {' or '.join(map(repr, near))}?" if near else ""),
        where=f"{path}, and by name in {', '.join(map(str, folders.folders)) or 'no folder'}",
        fix=f"give a YAML file, a run folder or one of: {', '.join(names) or '(no recipe is installed)'}",
    )


def read_layers(file: Path, folders: RecipeFolders) -> list[Node]:
    """The layers of a recipe file: its bases, the deepest first, then itself.

    Raises:
        UserError: a base that isn't there, or a circle of bases.
    """
    return list(_layers(file, "recipe", folders, ()))


def base_layers(node: Node, folders: RecipeFolders) -> Iterator[Node]:
    """Layers of what a node names under ``base``, for a recipe that is no file."""
    for name in _bases(node):
        yield from _layers(find_layer(name, folders), "base", folders, ())


def _layers(
    file: Path, kind: Literal["base", "recipe"], folders: RecipeFolders, above: Sequence[Path]
) -> Iterator[Node]:
    real = file.resolve()
    if real in above:
        circle = " -> ".join(shown(step) for step in (*above[above.index(real) :], real))
        raise UserError(f"the bases form a circle: {circle}", fix="remove one `base:`")
    node = read_file(file, kind)
    for name in _bases(node):
        yield from _layers(find_layer(name, folders), "base", folders, (*above, real))
    yield without_base(node)


def without_base(node: Node) -> Node:
    """A layer as it is merged, once its bases have been read."""
    assert isinstance(node.value, dict)
    return Node({key: value for key, value in node.value.items() if key != "base"}, node.origin)


def _bases(node: Node) -> list[Node]:
    assert isinstance(node.value, dict)
    base = node.value.get("base")
    if base is None or base.value is None:
        return []
    bases = base.value if isinstance(base.value, list) else [base]
    for name in bases:
        if not isinstance(name.value, str) or not name.value:
            raise UserError("`base` takes the path or name of a recipe, or a list of them", where=str(name.origin))
    return bases


def find_layer(name: Node, folders: RecipeFolders, what: Literal["base", "recipe"] = "base") -> Path:
    """The file that a recipe names: by a path relative to its own, or by the name of a recipe.

    Raises:
        UserError: there is none; says where it was looked for, and near names.
    """
    text = str(name.value)
    path = absolute(text, name.origin.folder)
    for candidate in (path, Path(f"{path}.yaml")):
        if _is_file(candidate):
            return candidate
    if found := folders.find(text, presets=False):
        return found
    raise UserError(
        f"there is no {what} {text!r}{did_you_mean(text, folders.names())}",
        where=f"{name.origin}; looked for {path}",
        fix="give a path relative to this file, or " + ("preset/NAME" if what == "base" else "the name of a recipe"),
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long a name, a NUL character
        return False
