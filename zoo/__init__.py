"""A plugin-based zoo of transformers, from Python: what the commands do, as functions.

``import zoo`` imports nothing else; each function brings in what it needs when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.api import build as build
    from zoo.api import compare as compare
    from zoo.api import components as components
    from zoo.api import generate as generate
    from zoo.errors import UserError as UserError
    from zoo.recipe import load_recipe as load_recipe
    from zoo.training.evaluate import evaluate as evaluate
    from zoo.training.predict import predict as predict
    from zoo.training.run import load_run as load
    from zoo.training.train import train as train

__all__ = [
    "UserError",
    "build",
    "compare",
    "components",
    "evaluate",
    "generate",
    "load",
    "load_recipe",
    "predict",
    "train",
]

_HOMES = {
    "UserError": "zoo.errors:UserError",
    "build": "zoo.api:build",
    "compare": "zoo.api:compare",
    "components": "zoo.api:components",
    "evaluate": "zoo.training.evaluate:evaluate",
    "generate": "zoo.api:generate",
    "load": "zoo.training.run:load_run",
    "load_recipe": "zoo.recipe:load_recipe",
    "predict": "zoo.training.predict:predict",
    "train": "zoo.training.train:train",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("transformer-zoo")
    if name not in _HOMES:
        raise AttributeError(f"module 'zoo' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
