"""Recipes: YAML files that name components, composed, typed and checked without importing torch themselves."""

from zoo.recipe.node import Origin
from zoo.recipe.recipe import ABSENT, Change, Recipe, load_recipe

__all__ = ["ABSENT", "Change", "Origin", "Recipe", "load_recipe"]
