"""The components that come with the zoo, found through the same entrance that any other package uses."""

from __future__ import annotations

from pathlib import Path

from zoo.hookspecs import hookimpl

zoo_api = 1


@hookimpl
def zoo_recipe_paths() -> list[Path]:
    """The folder of recipes: package data of an installed wheel, ``recipes/`` at the top of a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "recipes", package.parents[1] / "recipes"):
        if folder.is_dir():
            return [folder]
    raise FileNotFoundError(f"{package} was installed without its recipes; reinstall transformer-zoo")
