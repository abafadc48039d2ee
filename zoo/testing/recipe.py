"""Conformance of a recipe's own model at a small length: what its parts promise, together."""

from __future__ import annotations

from typing import Any

from zoo.builder import build_model
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Description
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.testing.model import model_suite
from zoo.testing.model_case import ModelSubject

_LARGEST = 200_000_000
_STAND_IN = Description(vocab_size=257, max_length=32, classes=10, image_size=(32, 32), channels=3)
"""Sizes for what a recipe leaves to its data, which a check doesn't read."""


class RecipeSubject(ModelSubject):
    """The model of a recipe.

    Args:
        recipe: the recipe.
        description: sizes for what it leaves to its data.
        seed: everything random follows from it.

    Raises:
        UserError: a model too large to be run in float64 on this machine.
    """

    def __init__(self, recipe: Recipe, *, description: Description = _STAND_IN, seed: int = 0, **others: Any) -> None:
        self.recipe, self.description = recipe, description
        offers = recipe.component("architecture").load().offers
        if "patches" in recipe.component("architecture.embedding").load().offers:
            offers -= {"padding", "documents", "cache"}  # an image comes whole
        super().__init__(self.build_on, offers, seed=seed)
        count = sum(parameter.numel() for parameter in self.build_on("meta").parameters())
        if count > _LARGEST:
            raise UserError(
                f"{recipe.name} has {count:,} parameters; a check runs it in float64, several times over",
                where=recipe.where("architecture"),
                fix="check a recipe that has it as its base and fewer layers, as architecture: {layers: 2}",
            )

    def build_on(self, device: str) -> Architecture:
        """The model on a device."""
        return build_model(self.recipe, self.description, device=device)


SUITE = model_suite("recipe", RecipeSubject)
