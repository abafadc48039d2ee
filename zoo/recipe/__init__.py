"""Recipes: YAML files that name components, composed, typed and checked without importing torch themselves."""

from zoo.recipe.comparison import Comparison, load_comparison
from zoo.recipe.node import Origin
from zoo.recipe.recipe import ABSENT, Change, Recipe, load_recipe

__all__ = ["ABSENT", "Change", "Comparison", "Origin", "Recipe", "load_comparison", "load_recipe"]
