"""Image classification: losses by hand and by torch, mixing that belongs to the sample, the same loss in any split."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from timm.data.mixup import mixup_target, rand_bbox
from timm.loss import SoftTargetCrossEntropy
from torch import Tensor, nn

from image_samples import draw, make
from zoo.contracts.architecture import Output
from zoo.contracts.data import Draw
from zoo.data.mixing import Mixing, _span
from zoo.errors import RunFailed
from zoo_builtin.task.image_classification import ImageClassification


class Fixed(nn.Module):
    """A model whose scores are the first row of its images."""

    def __init__(self, auxiliary: Tensor | None = None) -> None:
        super().__init__()
        self.auxiliary, self.head = auxiliary, lambda hidden: hidden

    def forward(self, images_BCHW: Tensor) -> Output:
        return Output(images_BCHW[:, 0, 0], self.auxiliary)


class Numbered:
    """Images of 4 x 6 pixels that all hold their number, and a class out of three; number 7 is damaged."""

    def batch(self, wanted: Draw, split: str) -> dict[str, Tensor]:
        assert split == "train"
        ids = torch.from_numpy(wanted.samples)
        images = ids.clamp(min=0).float()[:, None, None, None].expand(-1, 2, 4, 6).clone()
        return {"images": images, "labels": torch.where((ids < 0) | (ids == 7), -100, ids % 3)}

    def size(self, split: str) -> int:
        return {"train": 40}[split]


def task(data: Any = None, **knobs: Any) -> ImageClassification:
    return ImageClassification(ImageClassification.Config(**knobs), data=data or Numbered())


def batch(scores: list[list[float]], labels: list[int], **more: Any) -> dict[str, Tensor]:
    images = torch.tensor(scores)[:, None, None]
    return {"images": images, "labels": torch.tensor(labels), **{k: torch.tensor(v) for k, v in more.items()}}


def test_the_loss_is_the_sum_over_images_in_nats() -> None:
    rows = batch([[math.log(3), 0.0], [0.0, 0.0], [9.0, 9.0]], [1, 0, -100])
    loss = task().loss(Fixed(), rows)
    assert loss.total.item() == pytest.approx(math.log(4) + math.log(2))
    sums = {name: value.item() for name, value in loss.sums.items()}
    assert sums == pytest.approx({"loss": loss.total.item(), "targets": 2, "correct": 1, "correct5": 2})
    assert task().count(rows) == 2


def test_the_best_five_of_seven() -> None:
    scores = [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    loss = task().loss(Fixed(), batch([scores] * 3, [0, 4, 5]))
    metrics = task().summary({name: float(value) for name, value in loss.sums.items()})
    assert metrics["accuracy"] == pytest.approx(1 / 3)
    assert metrics["top5"] == pytest.approx(2 / 3)
    assert list(metrics) == list(ImageClassification.metrics)


def test_labels_are_smoothed_in_training_only() -> None:
    rows = batch([[2.0, 0.0, -1.0]], [1])
    smoothed = F.cross_entropy(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([1]), label_smoothing=0.1)
    made, model = task(label_smoothing=0.1), Fixed()
    assert made.loss(model.train(), rows).total.item() == pytest.approx(smoothed.item())
    assert made.loss(model.eval(), rows).total.item() == task().loss(model, rows).total.item()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_mixed_images_is_that_of_timms_soft_targets(smoothing: float) -> None:
    """timm pairs row i with row B - 1 - i and makes dense targets of them."""
    scores, labels = torch.randn(4, 5), torch.tensor([3, 0, 4, 1])
    share = torch.tensor([0.9, 0.3, 1.0, 0.6])
    rows = {"images": scores[:, None, None], "labels": labels, "other_labels": labels.flip(0), "share": share}
    targets = mixup_target(labels, 5, share[:, None], smoothing)
    expected = SoftTargetCrossEntropy()(scores, targets) * 4
    assert task(label_smoothing=smoothing).loss(Fixed().train(), rows).total.item() == pytest.approx(expected.item())


def test_a_mixed_image_is_answered_rightly_with_the_label_of_the_larger_share() -> None:
    rows = batch([[1.0, 0.0]] * 3, [0, 0, 1], other_labels=[1, 1, 0], share=[0.6, 0.4, 0.4])
    assert task().loss(Fixed(), rows).sums["correct"].item() == 2


def test_auxiliary_losses_join_the_gradient_and_not_the_metric() -> None:
    loss = task().loss(Fixed(torch.tensor(5.0)), batch([[0.0, 0.0]], [1]))
    assert loss.total.item() == pytest.approx(5 + math.log(2))
    assert loss.sums["loss"].item() == pytest.approx(math.log(2))


def test_empty_rows_give_0_and_a_gradient_of_0() -> None:
    scores = torch.randn(2, 1, 1, 3, requires_grad=True)
    for more in ({}, {"other_labels": torch.tensor([-100, -100]), "share": torch.ones(2)}):
        scores.grad = None
        rows = {"images": scores, "labels": torch.tensor([-100, -100]), **more}
        total = task(label_smoothing=0.1).loss(Fixed().train(), rows).total
        total.backward()
        assert total.item() == 0
        assert scores.grad is not None and not scores.grad.any()
    with pytest.raises(RunFailed, match="no image in all of the data has a label"):
        task().summary({"loss": 0.0, "targets": 0.0, "correct": 0.0, "correct5": 0.0})


def test_scores_in_bfloat16_are_summed_in_float32() -> None:
    rows = {"images": torch.randn(300, 1, 1, 10).bfloat16(), "labels": torch.randint(10, (300,))}
    loss = task().loss(Fixed(), rows)
    exact = F.cross_entropy(rows["images"][:, 0, 0].double(), rows["labels"], reduction="sum")
    assert loss.total.dtype == torch.float32
    assert loss.total.item() == pytest.approx(exact.item(), rel=1e-6)


@pytest.mark.parametrize(
    "knobs",
    [{"label_smoothing": 1.0}, {"mixup": -1.0}, {"cutmix": -0.1}, {"mix_probability": 1.1}, {"cut_probability": -0.1}],
)
def test_numbers_out_of_range_are_refused(knobs: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(knobs)).split("_")[-1][:5]):
        task(**knobs)


# Mixing -----------------------------------------------------------------------------------------------------------


def prepared(made: ImageClassification, wanted: Draw, split: Any = "train") -> dict[str, Tensor]:
    return made.prepare(Numbered().batch(wanted, "train"), wanted, split)


MIXES = [{"mixup": 0.8}, {"cutmix": 1.0}, {"mixup": 0.8, "cutmix": 1.0, "mix_probability": 0.7}]


@pytest.mark.parametrize("knobs", MIXES)
@pytest.mark.parametrize("epoch", [0, 3])
def test_a_mixed_image_belongs_to_seed_epoch_and_sample(knobs: dict[str, float], epoch: int) -> None:
    made = task(**knobs)
    whole = prepared(made, draw(*range(40), epoch=epoch))
    for samples in ([5], [39, 5, 0], [17, -1, 5]):
        for name, tensor in prepared(made, draw(*samples, epoch=epoch)).items():
            assert torch.equal(tensor[samples.index(5)], whole[name][5]), name
    for other in (draw(*range(40), epoch=epoch + 1), draw(*range(40), epoch=epoch, seed=1)):
        assert not torch.equal(prepared(made, other)["images"], whole["images"])


@pytest.mark.parametrize("knobs", MIXES)
def test_the_loss_is_the_same_in_any_split_into_ranks_and_micro_batches(knobs: dict[str, float]) -> None:
    made, model = task(**knobs, label_smoothing=0.1), Fixed().double()
    wanted = draw(*range(12), -1, -1)

    def total(pieces: list[list[int]]) -> float:
        rows = [Draw(wanted.samples[piece], wanted.epochs[piece], wanted.seed) for piece in pieces]
        return sum(made.loss(model.train(), prepared(made, piece)).total.item() for piece in rows)

    whole = total([list(range(14))])
    assert total([[0, 2, 4, 6, 8, 10, 12], [1, 3, 5, 7, 9, 11, 13]]) == pytest.approx(whole, rel=1e-5)
    assert total([[i] for i in range(14)]) == pytest.approx(whole, rel=1e-5)


def test_mixup_is_the_weighted_mean_of_two_images() -> None:
    rows = prepared(task(mixup=0.8), draw(*range(20)))
    own = torch.arange(20.0)
    value = rows["images"][:, 0, 0, 0]
    assert torch.equal(rows["images"], value[:, None, None, None].expand_as(rows["images"]))
    mixed = rows["share"] < 1
    partner = (value - rows["share"] * own)[mixed] / (1 - rows["share"][mixed])
    near = (1 - rows["share"][mixed]) > 0.01  # a smaller part of the partner is lost in rounding
    torch.testing.assert_close(partner[near], partner[near].round(), atol=1e-2, rtol=0)
    assert torch.equal(partner[near].round() % 3, rows["other_labels"][mixed][near].float())


def test_cutmix_puts_a_box_of_the_partner_into_the_image_and_counts_its_pixels() -> None:
    rows = prepared(task(cutmix=1.0), draw(*range(1, 7), *range(8, 30)))
    columns = [rows[name] for name in ("images", "labels", "other_labels", "share")]
    for image, label, other, share in zip(*columns, strict=True):
        values = image.unique().tolist()
        own = [value for value in values if value % 3 == label and (image == value).float().mean() == share]
        assert own or share == 0
        if share < 1 and other != -100:
            partner = [value for value in values if value not in own[:1]]
            assert [value % 3 for value in partner] == [other]
            rows_in, columns_in = ((image[0] == partner[0]).any(axis) for axis in (1, 0))
            assert rows_in.sum() * columns_in.sum() == (image[0] == partner[0]).sum()  # one box


@given(st.floats(0, 1), st.integers(0, 9), st.integers(0, 6))
def test_boxes_are_those_of_timm(share: float, row: int, column: int) -> None:
    centres = iter([row, column])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np.random, "randint", lambda *bounds, size: next(centres))
        top, bottom, left, right = rand_bbox((3, 10, 7), share)
    rows, columns = _span(share, (row + 0.5) / 10, 10), _span(share, (column + 0.5) / 7, 7)
    assert (rows.start, rows.stop, columns.start, columns.stop) == (top, bottom, left, right)


def test_shares_are_distributed_as_in_timm() -> None:
    """Beta(0.8, 0.8) has mean 1/2 and variance 1 / (4 * 2.6)."""
    data = SimpleNamespace(size=lambda split: 10**6, batch=Numbered().batch)
    shares = prepared(task(data, mixup=0.8), draw(*range(8, 20_008)))["share"].double()
    assert shares.mean().item() == pytest.approx(0.5, abs=0.01)
    assert shares.var().item() == pytest.approx(1 / 10.4, abs=0.003)
    both = prepared(task(data, mixup=0.8, cutmix=1.0, mix_probability=0.7), draw(*range(8, 20_008)))
    assert (both["other_labels"] >= 0).double().mean().item() == pytest.approx(0.7, abs=0.02)


def test_partners_are_other_images_and_all_of_them() -> None:
    seen: list[np.ndarray] = []

    def fetch(wanted: Draw) -> dict[str, Tensor]:
        seen.append(wanted.samples)
        return Numbered().batch(wanted, "train")

    mixing = Mixing(mixup=1.0, cutmix=0.0, probability=1.0, cut=0.0)
    for epoch in range(200):
        wanted = draw(3, epoch=epoch)
        mixing(Numbered().batch(wanted, "train"), wanted, fetch, 10)
    assert {int(partner[0]) for partner in seen} == set(range(10)) - {3}


def test_nothing_is_mixed_with_an_image_that_could_not_be_read() -> None:
    made = task(mixup=1.0)
    rows = [prepared(made, draw(6, 7, epoch=epoch)) for epoch in range(120)]
    for row in rows:
        assert row["labels"].tolist() == [0, -100]
        assert row["share"][1] == 1 and row["other_labels"][1] == -100
        assert (row["other_labels"][0] == -100) == (row["share"][0] == 1)
    assert any(row["other_labels"][0] == -100 for row in rows)  # number 7 was its partner


@pytest.mark.parametrize("split", ["validation", "test"])
def test_only_training_is_mixed(split: str) -> None:
    assert prepared(task(mixup=0.8, cutmix=1.0), draw(1, 2), split).keys() == {"images", "labels"}


@given(st.lists(st.integers(-1, 39), min_size=1, max_size=6), st.integers(0, 5))
def test_empty_rows_stay_empty(samples: list[int], epoch: int) -> None:
    rows = prepared(task(mixup=0.8, cutmix=1.0), draw(*samples, epoch=epoch))
    empty = torch.tensor(samples) < 0
    assert not rows["images"][empty].any()
    assert (rows["labels"][empty] == -100).all()
    assert task().count(rows) == sum(sample >= 0 and sample != 7 for sample in samples)


def test_real_images_are_mixed_with_their_changed_selves(tmp_path: Path) -> None:
    data = make(tmp_path, source="digits", shift=1)
    made = task(data, cutmix=1.0)
    wanted = draw(*range(30))
    rows = made.prepare(data.batch(wanted, "train"), wanted, "train")
    plain = data.batch(wanted, "train")
    assert rows["images"].shape == plain["images"].shape
    assert torch.equal(rows["labels"], plain["labels"])
    same = (rows["images"] == plain["images"]).float().mean((1, 2, 3))
    assert (same >= rows["share"] - 1e-6).all()
    assert (rows["share"] < 1).float().mean() > 0.8
