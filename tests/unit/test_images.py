"""Image data: the sets that come along, their parts, batches as pure functions of a draw, mean and deviation."""

from __future__ import annotations

import json
import logging
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from image_samples import draw, encode, make, whole, write_images
from zoo.contracts.data import Description
from zoo.data.image_sets import StoredImages, measure_images, split_images
from zoo.data.mnist1d import make_mnist1d
from zoo.errors import UserError
from zoo.testing.data import SUITE, DataSubject
from zoo_builtin.data.images import Images

SPLITS = ("train", "validation", "test")


def rows_of(images):
    return {image.numpy().tobytes() for image in images}


# Digits


def test_digits_are_those_of_scikit_learn_normalized_over_the_train_part(tmp_path):
    data = make(tmp_path)
    assert data.describe() == Description(classes=10, image_size=(8, 8), channels=1)
    assert data.labels() == [str(digit) for digit in range(10)]
    assert [data.size(split) for split in SPLITS] == [1437, 180, 180]
    parts = {split: whole(data, split) for split in SPLITS}
    train = parts["train"]["images"]
    assert (train.shape, train.dtype) == ((1437, 1, 8, 8), torch.float32)
    assert parts["train"]["labels"].dtype == torch.int64
    assert abs(float(train.mean())) < 1e-4
    assert abs(float(train.std(correction=0)) - 1) < 1e-4
    state = data.state()
    digits = load_digits()
    published = {
        (image / 16).astype(np.float32).tobytes() + bytes([label])
        for image, label in zip(digits.images, digits.target, strict=True)
    }
    found = set()
    for part in parts.values():
        raw = part["images"].double() * state["std"][0] + state["mean"][0]
        exact = (raw * 16).round() / 16
        assert float((raw - exact).abs().max()) < 1e-6
        for image, label in zip(exact.float().numpy(), part["labels"].tolist(), strict=True):
            found.add(image.tobytes() + bytes([label]))
    assert found == published


def test_normalize_none_leaves_what_was_there(tmp_path):
    data = make(tmp_path, normalize="none", validation=0, test=0)
    images = whole(data, "train")["images"].numpy()[:, 0]
    assert np.array_equal(images, (load_digits().images / 16).astype(np.float32))
    assert (data.state()["mean"], data.state()["std"]) == ([0.0], [1.0])


def test_imagenet_statistics_are_for_three_channels(tmp_path):
    with pytest.raises(UserError, match="of 3 channels, and the images have 1"):
        make(tmp_path, normalize="imagenet")
    data = make(tmp_path, normalize="imagenet", channels=3)
    raw = make(tmp_path, normalize="none", channels=3)
    got, plain = (each.batch(draw(3), "test")["images"] for each in (data, raw))
    assert got.shape == (1, 3, 8, 8)
    mean, std = (torch.tensor(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    torch.testing.assert_close(got, (plain - mean) / std, rtol=1e-6, atol=1e-6)


def test_digits_can_be_larger_and_in_colour(tmp_path):
    data = make(tmp_path, size=(16, 24), channels=3, normalize="none", fit="pad", background=0)
    assert data.describe() == Description(classes=10, image_size=(16, 24), channels=3)
    images = whole(data, "test")["images"]
    assert images.shape == (180, 3, 16, 24)
    assert torch.equal(images[:, 0], images[:, 2])
    assert 0 <= float(images.min()) <= float(images.max()) <= 1
    assert float(images[..., :4].abs().max()) == float(images[..., 20:].abs().max()) == 0
    assert float(images.max()) > 0.9


# MNIST-1D


def test_mnist1d_is_the_published_set():
    signals, digits = make_mnist1d()
    assert signals.shape == (5000, 40)
    assert digits[:12].tolist() == [2, 6, 4, 5, 6, 6, 6, 0, 3, 1, 6, 9]
    assert np.bincount(digits).tolist() == [500] * 10
    first = [-0.332006, -0.47191, -0.778697, -1.009741, -0.882353, 0.103935]
    last = [-0.395911, -0.098646, 0.447233, 0.659876, 0.877734, 1.193152]
    np.testing.assert_allclose(signals[0, :6], first, atol=1e-6)
    np.testing.assert_allclose(signals[-1, -6:], last, atol=1e-6)
    np.testing.assert_allclose([signals.mean(), signals.std()], [0, 1], atol=1e-12)


@pytest.mark.slow
def test_mnist1d_equals_the_authors_package():
    package = pytest.importorskip("mnist1d.data")
    published = package.make_dataset()
    signals, digits = make_mnist1d()
    np.testing.assert_allclose(signals[:4000], published["x"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(signals[4000:], published["x_test"], rtol=0, atol=1e-12)
    assert digits.tolist() == [*published["y"], *published["y_test"]]


def test_mnist1d_keeps_its_published_test_part(tmp_path):
    data = make(tmp_path, source="mnist1d", normalize="none")
    assert data.describe() == Description(classes=10, image_size=(1, 40), channels=1)
    assert [data.size(split) for split in SPLITS] == [3600, 400, 1000]
    signals, digits = make_mnist1d()
    test = whole(data, "test")
    assert np.array_equal(test["images"][:, 0, 0].numpy(), signals[4000:].astype(np.float32))
    assert test["labels"].tolist() == digits[4000:].tolist()
    with pytest.raises(UserError, match=r"test is 0.2, and data.source: mnist1d has a test part of its own"):
        make(tmp_path, source="mnist1d", test=0.2)


# Batches


def test_an_empty_row_is_zero_and_has_no_label(tmp_path):
    data = make(tmp_path)
    batch = data.batch(draw(5, -1, 6), "validation")
    alone = data.batch(draw(5, 6), "validation")
    assert torch.equal(batch["images"][[0, 2]], alone["images"])
    assert batch["labels"].tolist() == [alone["labels"][0], -100, alone["labels"][1]]
    assert float(batch["images"][1].abs().max()) == 0
    nothing = data.batch(draw(-1, -1), "test")
    assert nothing["images"].shape == (2, 1, 8, 8)
    assert nothing["labels"].tolist() == [-100, -100]


def test_a_sample_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(IndexError, match="sample 180 of 180 in the test part"):
        make(tmp_path).batch(draw(0, 180), "test")


def test_reading_before_preparing_is_an_error(tmp_path):
    data = make(tmp_path, prepare=False)
    for read in (data.describe, data.labels, data.fingerprint, lambda: data.size("train")):
        with pytest.raises(RuntimeError, match="before prepare"):
            read()


def test_prepared_data_goes_to_another_process(tmp_path):
    data = make(tmp_path, flip=True, shift=1, augment="rand-m9-mstd0.5-inc1")
    copy = pickle.loads(pickle.dumps(data))
    assert torch.equal(copy.batch(draw(4, 5), "train")["images"], data.batch(draw(4, 5), "train")["images"])


# Parts


def stored(*levels, given=None):
    pixels = np.stack([np.full((1, 2, 2), level, np.uint8) for level in levels])
    return StoredImages(pixels, [0] * len(levels), ["only"], given=given)


def test_equal_images_stay_together():
    levels = [level % 40 for level in range(120)]
    images = stored(*levels)
    parts = split_images(images, validation=0.2, test=0.2)
    held = {split: {levels[row] for row in rows} for split, rows in parts.items()}
    assert not held["train"] & held["validation"]
    assert not held["train"] & held["test"]
    assert not held["validation"] & held["test"]
    assert {split: len(rows) for split, rows in parts.items()} == {"train": 72, "validation": 24, "test": 24}


def test_the_order_of_images_decides_nothing():
    order = np.random.default_rng(0).permutation(100)
    one = split_images(stored(*range(100)), validation=0.1, test=0.2)
    other = split_images(stored(*order), validation=0.1, test=0.2)
    for split in SPLITS:
        assert sorted(one[split]) == sorted(order[row] for row in other[split])


def test_what_is_in_a_published_part_is_left_out_of_the_others(caplog):
    given = [None] * 6 + ["validation"] * 2 + ["test"] * 2
    images = stored(1, 2, 3, 4, 8, 9, 7, 8, 9, 10, given=given)
    parts = split_images(images, validation=0, test=0)
    assert {split: rows.tolist() for split, rows in parts.items()} == {
        "train": [0, 1, 2, 3],
        "validation": [6, 7],
        "test": [8, 9],
    }
    assert "2 images of the published train part are also in a later part" in caplog.text


def test_statistics_are_exact_and_a_constant_channel_has_deviation_1():
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (700, 3, 5, 4), dtype=np.uint8)
    pixels[:, 1] = 51
    images = StoredImages(pixels, [0] * 700, ["only"])
    measured = measure_images(images, np.arange(600))
    part = pixels[:600].astype(np.float64) / 255
    np.testing.assert_allclose(measured["mean"], part.mean((0, 2, 3)), atol=1e-6)
    np.testing.assert_allclose(measured["std"], [part[:, 0].std(), 1, part[:, 2].std()], atol=1e-6)


def test_the_fingerprint_knows_everything_that_shapes_a_sample(tmp_path):
    changes = [
        {},
        {"validation": 0.2},
        {"test": 0},
        {"normalize": "none"},
        {"size": (9, 8)},
        {"channels": 3},
        {"shift": 1},
        {"flip": True},
        {"augment": "v0"},
        {"source": "mnist1d"},
    ]
    prints = [make(tmp_path, **change).fingerprint() for change in changes]
    assert len(set(prints)) == len(prints)
    assert make(tmp_path, batch_size=7).fingerprint() == prints[0]


def test_no_validation_is_said(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        data = make(tmp_path, validation=0)
    assert "no validation: data.validation is 0" in caplog.text
    assert data.size("validation") == 0


# Images from outside


def test_files_are_shown_as_the_training_images_were(tmp_path):
    write_images(tmp_path / "set", {"cat": 20, "dog": 20})
    knobs = {"source": "folder", "root": tmp_path / "set", "size": (6, 8)}
    trained = make(tmp_path, **knobs)
    state = json.loads(json.dumps(trained.state()))
    again = make(tmp_path, prepare=False, **knobs)
    again.restore(state)
    assert again.labels() == ["cat", "dog"]
    assert again.describe() == trained.describe()
    files = sorted((tmp_path / "set").rglob("*.png"))
    shown = again.read_inputs(files)
    assert shown.shape == (40, 3, 6, 8)
    assert rows_of(shown) == set().union(*(rows_of(whole(trained, split)["images"]) for split in SPLITS))
    assert again.read_inputs([]).shape == (0, 3, 6, 8)


def test_a_digit_in_a_file_is_shown_as_the_digits_were(tmp_path):
    data = make(tmp_path)
    level = np.zeros((8, 8), np.uint8)
    level[2:6, 3] = 255
    path = tmp_path / "one.png"
    path.write_bytes(encode(Image.fromarray(level)))
    mean, std = data.state()["mean"][0], data.state()["std"][0]
    shown = data.read_inputs([path])
    torch.testing.assert_close(shown[0, 0], (torch.from_numpy(level) / 255 - mean) / std, rtol=1e-6, atol=1e-6)


def test_an_outside_file_that_is_no_image_is_named(tmp_path):
    data = make(tmp_path)
    text = tmp_path / "text.jpg"
    text.write_text("This is a text.")
    with pytest.raises(UserError, match="no image that Pillow knows") as error:
        data.read_inputs([text])
    assert error.value.where == str(text)
    with pytest.raises(UserError, match="No such file"):
        data.read_inputs([tmp_path / "gone.png"])
    with pytest.raises(UserError, match="mnist1d holds signals"):
        make(tmp_path, source="mnist1d").read_inputs([text])


def test_another_folder_is_measured_with_the_classes_and_statistics_of_training(tmp_path):
    write_images(tmp_path / "old", {"ant": 10, "bee": 10, "cow": 10})
    write_images(tmp_path / "new", {"bee": 10, "cow": 10}, first=500)
    knobs = {"source": "folder", "size": (6, 8)}
    old = make(tmp_path, root=tmp_path / "old", **knobs)
    new = make(tmp_path, prepare=False, root=tmp_path / "new", **knobs)
    new.restore(old.state())
    new.prepare()
    assert new.labels() == ["ant", "bee", "cow"]
    assert set(whole(new, "train")["labels"].tolist()) == {1, 2}
    assert new.state() == old.state()
    other = make(tmp_path, prepare=False, root=tmp_path / "old", **knobs)
    other.restore(make(tmp_path, root=tmp_path / "new", **knobs).state())
    with pytest.raises(UserError, match="class 'ant' isn't one of those that the model was trained on: bee, cow"):
        other.prepare()
    smaller = make(tmp_path, prepare=False, root=tmp_path / "new", source="folder", size=(4, 4))
    smaller.restore(old.state())
    with pytest.raises(UserError, match=r"the images are \(3, 4, 4\).*trained on \(3, 6, 8\)"):
        smaller.prepare()


# What is refused


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"source": "folder", "size": (8, 8)}, "source folder needs data.root"),
        ({"source": "folder", "root": "x"}, "source folder needs data.size"),
        ({"source": "torchvision", "root": "x"}, "source torchvision needs data.dataset"),
        ({"root": "x"}, "root is x, and source digits has no use for it"),
        ({"source": "mnist1d", "size": (1, 20)}, "source mnist1d has no use for it"),
        ({"source": "mnist1d", "augment": "v0"}, "source mnist1d has no use for it"),
        ({"errors": "skip"}, "errors is skip, and source digits"),
        ({"size": (0, 8)}, "at least 1 x 1 pixels"),
        ({"channels": 2}, "channels is 2"),
        ({"background": 256}, "from 0 to 255, not 256"),
        ({"shift": -1}, "shift is -1, below 0"),
        (
            {"source": "folder", "root": "x", "size": (8, 8), "cache_gigabytes": -1.0},
            "cache_gigabytes is -1.0, below 0",
        ),
        ({"validation": -0.1}, r"validation \(-0.1\)"),
        ({"validation": 0.5, "test": 0.5}, "something must be left for training"),
        ({"augment": "nonsense"}, "no augmentation policy 'nonsense'"),
        ({"augment": "rand-m9-oops"}, "no augmentation policy 'rand-m9-oops': section 'oops'"),
        ({"augment": "rand-x9"}, "no augmentation policy 'rand-x9'"),
        ({"augment": "rand-tnone"}, "no augmentation policy 'rand-tnone'"),
    ],
)
def test_knobs_that_make_no_sense_are_refused_before_anything_is_read(tmp_path, knobs, message):
    with pytest.raises(UserError, match=message):
        make(tmp_path, prepare=False, **knobs)


# Conformance


def suite_findings(component):
    return {finding.name: finding for finding in SUITE.run(DataSubject(component))}


def test_images_pass_the_examination_of_data():
    findings = suite_findings(Images)
    skipped = {name for name, finding in findings.items() if finding.status == "skipped"}
    assert skipped == {
        "slices are told in advance, and each sample says which it is in",
        "an oracle is right wherever there is a target",
        "a written answer is blanked, and nothing else is",
        "the chance level is that of its samples",
    }
    assert {findings[name].status for name in findings.keys() - skipped} == {"passed"}


class OneClassTooMany(Images):
    def batch(self, draw, split):
        batch = super().batch(draw, split)
        return {**batch, "labels": batch["labels"] + 1}


class Doubled(Images):
    def batch(self, draw, split):
        batch = super().batch(draw, split)
        return {**batch, "images": batch["images"].double()}


class LabelsInEmptyRows(Images):
    def batch(self, draw, split):
        return super().batch(draw._replace(samples=draw.samples.clip(min=0)), split)


@pytest.mark.parametrize(
    ("component", "check"),
    [
        (OneClassTooMany, "images and labels fit the sizes it tells"),
        (Doubled, "images and labels fit the sizes it tells"),
        (LabelsInEmptyRows, "an empty row has no target"),
    ],
)
def test_the_examination_catches_wrong_images(component, check):
    assert suite_findings(component)[check].status == "failed"
