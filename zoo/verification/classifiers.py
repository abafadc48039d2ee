"""Classifiers of scikit-learn on the images of a recipe: figures that depend on the data and on nothing of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from zoo.contracts.data import Data, Draw, Split
from zoo.errors import UserError
from zoo.recipe import Recipe
from zoo.training.job import prepare_task
from zoo.verification.entries import Classifier

_MAKERS: dict[Classifier, Any] = {"logistic_regression": LogisticRegression, "mlp": MLPClassifier}


def classifier_accuracy(recipe: Recipe, name: Classifier, knobs: dict[str, Any], split: Split) -> float:
    """Accuracy on a part of the recipe's data after fitting to its train part; pixels are standardized.

    Raises:
        UserError: data without images and labels, or knobs that the classifier doesn't take.
    """
    data = prepare_task(recipe).data
    inputs, labels = _part(data, "train", recipe)
    try:
        model = make_pipeline(StandardScaler(), _MAKERS[name](**{"random_state": recipe.seed, **knobs}))
        model.fit(inputs, labels)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"scikit-learn's {name} can't be fitted: {error}", fix="change the knobs of the check"
        ) from error
    return float(model.score(*_part(data, split, recipe)))


def _part(data: Data, split: Split, recipe: Recipe) -> tuple[np.ndarray, np.ndarray]:
    """All images of a part, flat, and their labels."""
    ids = np.arange(data.size(split))
    batch = data.batch(Draw(ids, np.zeros_like(ids), recipe.seed), split)
    if not {"images", "labels"} <= batch.keys():
        raise UserError("a classifier needs images and labels", where=recipe.where("data"), fix="choose other data")
    return batch["images"].flatten(1).numpy(), batch["labels"].numpy()
