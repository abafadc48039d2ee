"""Classification of texts: the loss, its sums, and that each kind of model reads what it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from zoo.builder import build_model, check_parts
from zoo.contracts.architecture import Architecture
from zoo.contracts.data import Description
from zoo.contracts.task import Batch
from zoo.errors import RunFailed, UserError
from zoo.recipe import Recipe
from zoo_builtin.task.text_classification import TextClassification

SIZES = Description(vocab_size=11, max_length=8, classes=4)
LAST = {"name": "classification", "pool": "last"}
MODELS = [
    {"name": "bert", "head": {"name": "classification", "pooler": True}},
    {"name": "bert", "head": {"name": "classification", "pool": "mean"}, "position": "rotary"},
    {"name": "gpt2", "head": LAST},
    {"name": "encoder_decoder", "head": LAST},
]


def model_of(settings: dict[str, Any]) -> Architecture:
    architecture = {"layers": 2, "dim": 8, "heads": 2, **settings}
    model = build_model(Recipe.from_dict({"architecture": architecture}, fragment=True), SIZES).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    return model


def task_of(**knobs: Any) -> TextClassification:
    return TextClassification(TextClassification.Config(**knobs), data=None)  # type: ignore[arg-type]


def batch_of(*rows: tuple[list[int], int], width: int = 8, junk: int = 0) -> Batch:
    """Rows of ids and a label, padded on the right."""
    ids = torch.full((len(rows), width), junk)
    valid = torch.zeros(len(rows), width, dtype=torch.bool)
    for row, (tokens, _) in enumerate(rows):
        ids[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
        valid[row, : len(tokens)] = True
    return {"ids": ids, "valid": valid, "labels": torch.tensor([label for _, label in rows])}


ROWS = [([1, 2, 3], 0), ([4, 5], 3), ([6, 7, 8, 9, 10, 1], 1), ([2], 3)]


class Fixed(torch.nn.Module):
    """A model whose scores are given: the ids are rows of a table."""

    offers = frozenset({"bidirectional"})

    def __init__(self, scores: torch.Tensor) -> None:
        super().__init__()
        self.scores = torch.nn.Parameter(scores)

    def forward(self, ids: torch.Tensor, mask: Any) -> Any:
        from zoo.contracts.architecture import Output

        return Output(self.scores[ids], None)

    def head(self, hidden: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        return hidden[:, 0]


def test_the_loss_is_the_cross_entropy_of_the_rows_that_have_a_label() -> None:
    scores = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    found = task_of().loss(Fixed(scores), batch_of(([0], 0), ([1], 2), ([0], -100)))  # type: ignore[arg-type]
    expected = -np.log(np.exp(2) / (np.exp(2) + 2)) + np.log(3)
    assert float(found.total.detach()) == pytest.approx(expected, rel=1e-6)
    sums = {name: float(value) for name, value in found.sums.items()}
    assert (sums["targets"], sums["loss"]) == (2, float(found.total.detach()))
    counts = {name: [sums[f"{name}_{place}"] for place in range(3)] for name in ("had", "made", "hits")}
    assert counts == {"had": [1, 0, 1], "made": [2, 0, 0], "hits": [1, 0, 0]}


def test_labels_are_smoothed_in_training_alone() -> None:
    model, batch = Fixed(torch.tensor([[2.0, 0.0, 0.0]])), batch_of(([0], 0))
    logs = torch.log_softmax(model.scores.detach()[0], 0)
    smoothed = -(0.9 * logs[0] + 0.1 * logs.mean())
    task: Any = task_of(label_smoothing=0.1)
    torch.testing.assert_close(task.loss(model.train(), batch).total.detach(), smoothed)
    torch.testing.assert_close(task.loss(model.eval(), batch).total.detach(), -logs[0])


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_a_share_of_smoothing_that_is_none_is_refused(smoothing: float) -> None:
    with pytest.raises(ValueError, match="label_smoothing must be at least 0 and below 1"):
        task_of(label_smoothing=smoothing)


def test_macro_f1_is_that_of_scikit_learn_over_batches() -> None:
    """A class that neither occurs nor is predicted doesn't count; one that is never right counts as 0."""
    random = np.random.default_rng(0)
    scores = torch.from_numpy(random.standard_normal((40, 6)))
    scores[:, 5] = -9.0
    labels = random.integers(0, 5, 40)
    sums: dict[str, float] = {}
    for part in (slice(0, 17), slice(17, 40)):
        batch = batch_of(*((([row], int(labels[row]))) for row in range(40)[part]))
        for name, value in task_of().loss(Fixed(scores), batch).sums.items():  # type: ignore[arg-type]
            sums[name] = sums.get(name, 0.0) + float(value)
    found, made = task_of().summary(sums), scores.argmax(1).numpy()
    assert found["macro_f1"] == pytest.approx(f1_score(labels, made, average="macro"))
    assert found["accuracy"] == pytest.approx((labels == made).mean())
    assert found["loss"] == pytest.approx(sums["loss"] / 40)


def test_no_label_at_all_is_a_failed_run() -> None:
    sums = dict.fromkeys(("loss", "targets", "hits_0", "made_0", "had_0"), 0.0)
    with pytest.raises(RunFailed, match="no text in all of the data has a label"):
        task_of().summary(sums)


@pytest.mark.parametrize("settings", MODELS, ids=["first", "mean", "causal", "both"])
def test_padding_changes_nothing_whatever_stands_in_it(settings: dict[str, Any]) -> None:
    model = model_of(settings).eval()
    alone = [task_of().loss(model, batch_of(row, width=len(row[0]))).total for row in ROWS]
    for junk in (0, 7):
        together = task_of().loss(model, batch_of(*ROWS, ([], -100), junk=junk)).total
        torch.testing.assert_close(together, torch.stack(alone).sum(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("settings", MODELS, ids=["first", "mean", "causal", "both"])
def test_every_token_of_a_text_can_matter(settings: dict[str, Any]) -> None:
    model = model_of(settings).eval()
    with torch.no_grad():
        before = task_of().loss(model, batch_of(([1, 2, 3, 4], 0))).total
        for place in range(4):
            changed = [1, 2, 3, 4]
            changed[place] = 9
            assert abs(float(task_of().loss(model, batch_of((changed, 0))).total - before)) > 1e-6


@pytest.mark.parametrize("name", ["gpt2", "encoder_decoder"])
def test_the_first_token_of_a_causal_model_knows_nothing_so_it_is_not_read(name: str) -> None:
    with pytest.raises(UserError, match=r"has seen nothing but itself; set head\.pool: last"):
        model_of({"name": name, "head": "classification"})


@pytest.mark.parametrize("settings", MODELS, ids=["first", "mean", "causal", "both"])
def test_every_parameter_learns(settings: dict[str, Any]) -> None:
    model = model_of(settings)
    task_of().loss(model, batch_of(*ROWS)).total.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_model_without_classes_is_refused_by_the_recipe(tmp_path: Path) -> None:
    values = {"data": "labelled_text", "task": "text_classification", "architecture": {"name": "bert"}}
    with pytest.raises(UserError, match="task text_classification needs a model that offers 'class_scores'") as caught:
        check_parts(Recipe.from_dict(values))
    assert "classification" in str(caught.value)
