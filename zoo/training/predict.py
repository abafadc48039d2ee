"""Classes of images and texts from outside, by a run's model; the run's data needn't be there any more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from zoo.errors import UserError
from zoo.nn.class_scores import class_scores
from zoo.training.job import restored_data
from zoo.training.run import LoadedRun, load_run


def predict(run: str | Path | LoadedRun, inputs: Sequence[str | Path]) -> list[dict[str, Any]]:
    """Which classes some inputs belong to, and how likely; what ``zoo predict --json`` prints.

    Args:
        run: a run folder, or what ``zoo.load`` gave.
        inputs: texts, or paths of image files, as the model reads the one or the other.

    Returns:
        for each input ``input`` and ``classes``, all of them as ``name`` and ``probability``, the likeliest first.

    Raises:
        UserError: no run, a run without classes, an empty text, a file that isn't there or no image.
    """
    loaded = load_run(run) if isinstance(run, str | Path) else run
    names = _names(loaded)
    texts = list(map(str, inputs))
    if not texts:
        raise UserError("there is no input", fix="give a text or a file")
    reads_text = "tokens" in loaded.model.embedding.offers
    if reads_text and (empty := [number for number, text in enumerate(texts, start=1) if not text.strip()]):
        raise UserError(f"input {empty[0]} of {len(texts)} is empty", fix="give a text with at least one character")
    data, found = restored_data(loaded), []
    for begin in range(0, len(texts), data.config.batch_size):
        some = texts[begin : begin + data.config.batch_size]
        batch = data.read_texts(some) if reads_text else {"images": data.read_inputs([Path(text) for text in some])}
        with torch.inference_mode():
            scores_BC, _ = class_scores(loaded.model, batch)
        found += [_ranked(row, names) for row in scores_BC.double().softmax(1).tolist()]
    return [{"input": text, "classes": classes} for text, classes in zip(texts, found, strict=True)]


def _names(run: LoadedRun) -> list[str]:
    """The classes by number; a model may have been made for more than the data names."""
    if "class_scores" not in run.model.head.offers or run.labels is None:
        raise UserError(
            f"the run's model has no classes: its task is {run.recipe.component('task').name}",
            where=str(run.path),
            fix="give a run of a classification",
        )
    more = range(len(run.labels), run.model.config.classes)
    return [*run.labels, *(f"class {number}" for number in more)]


def _ranked(probabilities: Sequence[float], names: Sequence[str]) -> list[dict[str, Any]]:
    pairs = sorted(zip(names, probabilities, strict=True), key=lambda pair: -pair[1])
    return [{"name": name, "probability": probability} for name, probability in pairs]
