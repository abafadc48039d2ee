"""Predicting next patches and hidden ones: values worked out by hand, one shift, no look at what is hidden."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from image_samples import draw, make
from zoo.builder import build_model
from zoo.contracts.architecture import Architecture, Output
from zoo.contracts.data import Description
from zoo.errors import RunFailed
from zoo.nn.patches import normalized, to_images, to_patches
from zoo.recipe import load_recipe
from zoo_builtin.task.masked_patches import MaskedPatches
from zoo_builtin.task.patch_lm import PatchLM

PATCH = (2, 3)


class Echo(nn.Module):
    """A model whose hidden state of a patch is the patch, behind one token of zeros; its head gives it back."""

    def __init__(self, auxiliary: Tensor | None = None) -> None:
        super().__init__()
        self.auxiliary, self.embedding = auxiliary, SimpleNamespace(patch_size=PATCH, extra=1)
        self.head = lambda hidden: hidden[:, 1:]

    def forward(self, images_BCHW: Tensor) -> Output:
        patches = to_patches(images_BCHW, PATCH)
        return Output(torch.cat([torch.zeros_like(patches[:, :1]), patches], 1), self.auxiliary)


class Data:
    """A data set that is only asked for its sizes."""

    def __init__(self, *size: int) -> None:
        self.image_size = size

    def describe(self) -> Description:
        return Description(image_size=self.image_size, channels=1, classes=2)  # type: ignore[arg-type]


def images(*labels: int, height: int = 4, width: int = 6) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(len(labels), 1, height, width, generator=generator, dtype=torch.float64)
    return {"images": pixels, "labels": torch.tensor(labels)}


def next_patch(**knobs: Any) -> PatchLM:
    return PatchLM(PatchLM.Config(**knobs), data=Data(4, 6))  # type: ignore[arg-type]


def masked(height: int = 4, width: int = 6, **knobs: Any) -> MaskedPatches:
    config = MaskedPatches.Config(**{"patch_size": PATCH, **knobs})
    return MaskedPatches(config, data=Data(height, width))  # type: ignore[arg-type]


def model(tmp_path: Path, name: str, **patches: Any) -> Architecture:
    """A small model of 4 x 6 pixels in four patches of 2 x 3."""
    sizes = {"image_size": [4, 6], "channels": 1, "layers": 2, "dim": 16, "heads": 2, "head": "pixels"}
    embedding = {"name": "patches", "patch_size": PATCH, **patches}
    file = tmp_path / "preset" / "model.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"architecture": {"name": name, **sizes, "embedding": embedding}}))
    made = build_model(load_recipe(file)).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)), alpha=0.3)
    return made


# The next patch ---------------------------------------------------------------------------------------------------


def test_each_patch_is_predicted_from_the_one_before_and_the_first_from_the_token_in_front() -> None:
    """A model that echoes its patches predicts each by its neighbour, not by itself."""
    batch = images(1, 0)
    patches = to_patches(batch["images"], PATCH)
    loss = next_patch().loss(Echo(), batch)  # type: ignore[arg-type]
    expected = patches[:, 0].square().sum() + (patches[:, 1:] - patches[:, :-1]).square().sum()
    torch.testing.assert_close(loss.total, expected)


def test_sums_are_over_numbers_and_empty_rows_count_nothing() -> None:
    batch = images(1, -100, 0)
    loss = next_patch().loss(Echo(), batch)  # type: ignore[arg-type]
    alone = next_patch().loss(Echo(), {name: tensor[[0, 2]] for name, tensor in batch.items()})  # type: ignore[arg-type]
    for name, value in alone.sums.items():
        torch.testing.assert_close(loss.sums[name], value)
    assert loss.sums["targets"].item() == next_patch().count(batch) == 2 * 24
    pixels = batch["images"][[0, 2]]
    metrics = next_patch().summary({name: float(value) for name, value in loss.sums.items()})
    mse = float(loss.total) / 48
    assert metrics == pytest.approx({"loss": mse, "explained": 1 - mse / float(pixels.var(correction=0))})


def test_a_larger_patch_has_the_loss_of_a_number_too(tmp_path: Path) -> None:
    """What is counted doesn't depend on the model's patches."""
    made = model(tmp_path, "gpt2")
    with torch.no_grad():
        made.head.project.weight.zero_()
        made.head.project.bias.zero_()
    batch = images(1, 1)
    loss = next_patch().loss(made, batch)
    torch.testing.assert_close(loss.total, batch["images"].square().sum())


def test_a_prediction_sees_earlier_patches_only(tmp_path: Path) -> None:
    made, batch = model(tmp_path, "gpt2"), images(0)
    batch["images"].requires_grad_()
    task = next_patch()
    for place in range(4):
        wanted: list[Tensor] = []
        made.head.register_forward_hook(lambda head, inputs, output, wanted=wanted: wanted.append(output))
        task.loss(made, batch)
        (gradient,) = torch.autograd.grad(wanted[0][0, place].sum(), batch["images"], allow_unused=True)
        seen = to_patches(gradient, PATCH)[0].abs().sum(1) > 0 if gradient is not None else torch.zeros(4).bool()
        assert seen.tolist() == [at < place for at in range(4)]


def test_without_a_token_in_front_the_first_patch_is_the_bias_of_the_head(tmp_path: Path) -> None:
    made, batch = model(tmp_path, "gpt2", class_tokens=0), images(0)
    found: list[Tensor] = []
    made.head.register_forward_hook(lambda head, inputs, output: found.append(output))
    loss = next_patch().loss(made, batch)
    assert torch.equal(found[0][0, 0], made.head.project.bias)
    assert loss.sums["targets"].item() == next_patch().count(batch) == 24


def test_normalized_targets_are_those_of_each_patch() -> None:
    batch = images(0)
    patches = to_patches(batch["images"], PATCH)
    before = torch.cat([torch.zeros_like(patches[:, :1]), patches[:, :-1]], 1)
    loss = next_patch(normalized=True).loss(Echo(), batch)  # type: ignore[arg-type]
    torch.testing.assert_close(loss.total, (before - normalized(patches)).square().sum())


# Hidden patches ---------------------------------------------------------------------------------------------------


def test_hidden_pixels_are_0_and_the_loss_is_over_them_alone() -> None:
    task, batch = masked(ratio=0.5), images(1, 0)
    rows = task.prepare(batch, draw(3, 8), "train")
    hidden = rows["hidden"].expand_as(rows["images"])
    assert not rows["images"][hidden].any()
    assert torch.equal(rows["images"][~hidden], batch["images"][~hidden])
    loss = task.loss(Echo(), rows)  # type: ignore[arg-type]  # an echo of zeros
    torch.testing.assert_close(loss.total, batch["images"][hidden].square().sum())
    assert loss.sums["targets"].item() == task.count(rows) == 2 * 2 * 6


@pytest.mark.parametrize(("ratio", "count"), [(0.6, 10), (0.75, 12), (0.01, None), (0.99, None)])
def test_all_images_hide_the_same_number_of_whole_squares(ratio: float, count: int | None) -> None:
    if count is None:
        with pytest.raises(ValueError, match="of 16 squares; make patch_size smaller"):
            masked(8, 12, ratio=ratio)
        return
    rows = masked(8, 12, ratio=ratio).prepare(images(*[0] * 9, height=8, width=12), draw(*range(9)), "train")
    squares = to_patches(rows["hidden"], PATCH)
    assert torch.equal(squares.all(-1), squares.any(-1))
    assert squares.all(-1).sum(1).tolist() == [count] * 9


def test_what_is_hidden_belongs_to_seed_epoch_and_sample() -> None:
    task, batch = masked(8, 12), images(*[0] * 40, height=8, width=12)
    whole = task.prepare(batch, draw(*range(40)), "train")["hidden"]
    alone = task.prepare({name: tensor[7:8] for name, tensor in batch.items()}, draw(7), "validation")["hidden"]
    assert torch.equal(alone[0], whole[7])
    for other in (draw(*range(40), epoch=1), draw(*range(40), seed=1)):
        assert not torch.equal(task.prepare(batch, other, "train")["hidden"], whole)
    share = whole.double().mean(0)
    assert share.min() > 0.3 and share.max() < 0.9  # no place is favoured


def test_an_empty_row_hides_nothing_to_predict() -> None:
    rows = masked().prepare(images(0, -100), draw(4, -1), "train")
    assert rows["hidden"].flatten(1).any(1).tolist() == [True, False]


def test_hidden_squares_need_not_be_the_models_patches(tmp_path: Path) -> None:
    """Squares of 2 x 6 over patches of 2 x 3."""
    task, made = masked(patch_size=(2, 6), ratio=0.5), model(tmp_path, "vit")
    rows = task.prepare(images(0, 1), draw(0, 1), "train")
    loss = task.loss(made, rows)
    predicted = to_images(made.head(made(rows["images"]).hidden), (2, 2), PATCH)
    expected = (predicted - rows["pixels"]).square().masked_fill(~rows["hidden"], 0.0).sum()
    torch.testing.assert_close(loss.total, expected)
    assert task.count(rows) == 2 * 12


def test_a_prediction_never_sees_what_is_hidden(tmp_path: Path) -> None:
    task, made, batch = masked(), model(tmp_path, "vit"), images(0)
    rows = task.prepare(batch, draw(0), "train")
    other = {**batch, "images": torch.where(rows["hidden"], 9.0, batch["images"])}
    again = task.prepare(other, draw(0), "train")
    assert torch.equal(again["images"], rows["images"])
    assert torch.equal(made(again["images"]).hidden, made(rows["images"]).hidden)
    assert not torch.equal(again["pixels"], rows["pixels"])


def test_normalized_squares_are_predicted_where_they_are() -> None:
    rows = masked(normalized=True).prepare(images(0), draw(0), "train")
    torch.testing.assert_close(to_patches(rows["pixels"], PATCH), normalized(to_patches(images(0)["images"], PATCH)))


@pytest.mark.parametrize(
    ("knobs", "told"), [({"ratio": 0.0}, "ratio"), ({"ratio": 1.0}, "ratio"), ({"patch_size": (3, 3)}, "4 x 6")]
)
def test_what_cannot_be_hidden_is_refused(knobs: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        masked(**knobs)


# Both -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [next_patch(), masked()])
def test_auxiliary_losses_join_the_gradient_and_not_the_metric(task: Any) -> None:
    rows = task.prepare(images(0), draw(0), "train")
    with_it, without = task.loss(Echo(torch.tensor(5.0)), rows), task.loss(Echo(), rows)
    assert (with_it.total - without.total).item() == pytest.approx(5 * task.count(rows))
    assert torch.equal(with_it.sums["loss"], without.sums["loss"])


@pytest.mark.parametrize("task", [next_patch(), masked()])
def test_no_pixel_to_predict_is_an_error_and_no_variance_explains_nothing(task: Any) -> None:
    with pytest.raises(RunFailed, match="no pixel to predict"):
        task.summary({"loss": 0.0, "targets": 0.0, "sum": 0.0, "squares": 0.0})
    assert task.summary({"loss": 2.0, "targets": 4.0, "sum": 4.0, "squares": 4.0}) == {"loss": 0.5, "explained": 0.0}


def test_predicting_the_mean_explains_nothing_and_predicting_all_explains_everything() -> None:
    values = torch.randn(50, dtype=torch.float64) + 3
    sums = {"targets": 50.0, "sum": float(values.sum()), "squares": float(values.square().sum())}
    error = float((values - values.mean()).square().sum())
    assert next_patch().summary({**sums, "loss": error})["explained"] == pytest.approx(0, abs=1e-12)
    assert next_patch().summary({**sums, "loss": 0.0})["explained"] == 1


def test_real_signals_go_through_both(tmp_path: Path) -> None:
    data = make(tmp_path, source="mnist1d")
    hide = MaskedPatches(MaskedPatches.Config(patch_size=(1, 4)), data=data)
    rows = hide.prepare(data.batch(draw(0, 1), "train"), draw(0, 1), "train")
    assert to_patches(rows["hidden"], (1, 4)).all(-1).sum(1).tolist() == [6, 6]
