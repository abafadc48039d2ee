"""The hooks of the zoo: what an installed plugin can offer beyond its component files.

A plugin is a package behind an entry point in the group ``zoo``. Its ``__init__.py`` declares the version of
these hooks that it was written for, and implements the ones it needs::

    from zoo.hookspecs import hookimpl

    zoo_api = 1

    @hookimpl
    def zoo_recipe_paths():
        return [Path(__file__).parent / "recipes"]

An implementation may leave out arguments that it has no use for. Any other function whose name starts with
``zoo_`` in that module is an error, so that a misspelt hook can't go unnoticed. Files and folders that are
given by path (``plugins:`` in a recipe, ``--plugin``, ``ZOO_PLUGINS``) hold components only; they have no hooks.

Listing never imports a plugin. Commands that build, train or compare do, so keep the module free of torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from zoo.component import Component

ZOO_API = 1
"""Version of these hooks and of the contracts; a package declares the one that it was written for."""

hookspec = pluggy.HookspecMarker("zoo")
hookimpl = pluggy.HookimplMarker("zoo")


@hookspec
def zoo_components() -> Sequence[Component]:  # type: ignore[empty-body]
    """Components that aren't a file of their own, each made by ``zoo.component.component``.

    For classes that are generated, or that live in a library which has its own layout. They are listed as
    ``unloaded`` until a command needs them; a component that is a file is listed without being imported.
    """


@hookspec
def zoo_recipe_paths() -> Sequence[Path]:  # type: ignore[empty-body]
    """Folders with recipes (``NAME.yaml``) and presets (``preset/NAME.yaml``) that are found by name."""


@hookspec
def zoo_callbacks(recipe: Any) -> Sequence[Any]:  # type: ignore[empty-body]
    """Lightning callbacks that join one run.

    Called once per run, in every process of it. ``recipe`` is the composed recipe, to be read, not changed.
    From ``setup`` on, ``trainer.default_root_dir`` is the run folder, for files of their own.
    """


@hookspec
def zoo_report_sections(document: Mapping[str, Any], folder: Path) -> Sequence[Any]:  # type: ignore[empty-body]
    """Sections that join the report of a comparison, each a ``zoo.report.section.Section`` of plain values.

    Called whenever a report is made, of a running comparison too. ``document`` is what its results.json holds, and
    ``folder`` where that lies; both are to be read, not changed. ``zoo.report.runs.run_folder`` finds the run of a
    cell. Texts are escaped, so none of them can be HTML. A hook that fails is named in the report, which is made
    without it.
    """
