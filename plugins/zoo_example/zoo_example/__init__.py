"""An example plugin: a gated attention, two cyclical schedules, a record of weight norms, and a recipe.

Everything in ``attention/`` is found without a word here. The hooks below offer what isn't a component file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.component import Component, component
from zoo.hookspecs import hookimpl

if TYPE_CHECKING:
    from lightning.pytorch import Callback

    from zoo.recipe import Recipe
    from zoo.report.section import Section

zoo_api = 1


@hookimpl
def zoo_components() -> list[Component]:
    """Both schedules of ``cycles``: two components in one file, so they are declared."""
    return [
        component(
            "schedule",
            "triangular",
            target="zoo_example.cycles:Triangular",
            summary="Up and down in straight lines, again and again.",
        ),
        component(
            "schedule",
            "warm_restarts",
            target="zoo_example.cycles:WarmRestarts",
            summary="Down along a cosine, then back to the top, again and again.",
        ),
    ]


@hookimpl
def zoo_recipe_paths() -> list[Path]:
    """The folder with ``gated_text.yaml``."""
    return [Path(__file__).parent / "recipes"]


@hookimpl
def zoo_callbacks(recipe: Recipe) -> list[Callback]:
    """A record of weight norms, for runs that use one of this package's components; other runs are left alone."""
    if not any(component.provider == "zoo-example" for component in recipe.components()):
        return []
    from zoo_example.weight_norms import WeightNorms

    return [WeightNorms(every=recipe.training.log_every)]


@hookimpl
def zoo_report_sections(document: Mapping[str, Any], folder: Path) -> list[Section]:
    """What ``weight_norms.csv`` of the runs comes to, where there is one."""
    from zoo_example.norm_section import norm_sections

    return norm_sections(document, folder)
