"""Folders of images: classes, given parts, duplicates, damage, what is kept and what is decoded anew."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from image_samples import draw, encode, make, noise, whole, write_images
from zoo.contracts.data import Description
from zoo.data import image_folder
from zoo.errors import UserError

SPLITS = ("train", "validation", "test")
BOTH_WAYS = pytest.mark.parametrize("cache_gigabytes", [4.0, 0.0], ids=["kept", "anew"])


def folder(tmp_path, *, root=None, size=(6, 8), **knobs):
    return make(tmp_path, source="folder", root=root or tmp_path / "set", size=size, **knobs)


def all_training(tmp_path, **knobs):
    return folder(tmp_path, validation=0, test=0, normalize="none", **knobs)


def as_bytes(batch):
    return [
        ((image * 255).round().byte().numpy().tobytes(), label)
        for image, label in zip(batch["images"], batch["labels"].tolist(), strict=True)
    ]


def raw(path, label):
    return np.asarray(Image.open(path)).transpose(2, 0, 1).tobytes(), label


@pytest.fixture
def decodes(monkeypatch):
    """How many files were decoded."""
    calls, decode = [], image_folder.decode
    monkeypatch.setattr(image_folder, "decode", lambda data, form: (calls.append(1), decode(data, form))[1])
    return calls


@BOTH_WAYS
def test_images_have_the_class_of_their_folder(tmp_path, cache_gigabytes):
    paths = write_images(tmp_path / "set", {"cat": 7, "dog": 5})
    data = all_training(tmp_path, cache_gigabytes=cache_gigabytes)
    assert data.labels() == ["cat", "dog"]
    assert data.describe() == Description(classes=2, image_size=(6, 8), channels=3)
    want = {raw(path, int(path.parent.name == "dog")) for path in paths}
    assert set(as_bytes(whole(data, "train"))) == want
    assert len(want) == data.size("train") == 12


def test_kept_and_decoded_anew_are_bit_equal(tmp_path):
    write_images(tmp_path / "set", {"cat": 20, "dog": 20}, size=(20, 30))
    knobs = {"size": (8, 8), "flip": True, "shift": 2, "augment": "rand-m9-mstd0.5-inc1"}
    kept, anew = folder(tmp_path, **knobs), folder(tmp_path, cache_gigabytes=0.0, **knobs)
    assert kept.fingerprint() == anew.fingerprint()
    for split in SPLITS:
        assert kept.size(split) == anew.size(split) > 0
        one, other = whole(kept, split), whole(anew, split)
        assert torch.equal(one["images"], other["images"])
        assert torch.equal(one["labels"], other["labels"])


def test_what_fits_is_decoded_once(tmp_path, decodes):
    write_images(tmp_path / "set", {"cat": 20, "dog": 20})
    data = folder(tmp_path)
    assert len(decodes) == 40
    whole(data, "train")
    whole(folder(tmp_path, validation=0.2), "train")
    assert len(decodes) == 40
    folder(tmp_path, size=(6, 6))
    assert len(decodes) == 80
    folder(tmp_path, cache_gigabytes=40 * 6 * 8 * 3 / 2**30)
    assert len(decodes) == 80


def test_what_does_not_fit_is_not_decoded_before_it_is_used(tmp_path, decodes):
    write_images(tmp_path / "set", {"cat": 20, "dog": 20})
    data = folder(tmp_path, cache_gigabytes=(40 * 6 * 8 * 3 - 1) / 2**30, normalize="none")
    assert not decodes
    data.batch(draw(0, 3, -1), "train")
    assert len(decodes) == 2
    assert not list((tmp_path / "cache").rglob("*.tmp*"))


def test_statistics_of_a_folder_that_is_not_kept_come_from_some_of_it(tmp_path, decodes, monkeypatch):
    monkeypatch.setattr("zoo_builtin.data.images._MEASURED", 8)
    write_images(tmp_path / "set", {"cat": 20, "dog": 20})
    state = folder(tmp_path, cache_gigabytes=0.0).state()
    assert len(decodes) == 8
    assert folder(tmp_path, cache_gigabytes=0.0).state() == state
    assert len(decodes) == 8
    np.testing.assert_allclose(state["mean"], [0.5] * 3, atol=0.06)
    np.testing.assert_allclose(state["std"], [0.29] * 3, atol=0.03)


def test_names_order_and_places_of_files_decide_nothing(tmp_path):
    paths = write_images(tmp_path / "set", {"cat": 12, "dog": 12})
    other = tmp_path / "other"
    for number, path in enumerate(reversed(paths)):
        new = other / path.parent.name / "deeper" / f"{number}.PNG"
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(path.read_bytes())
    one, two = folder(tmp_path), folder(tmp_path, root=other)
    assert one.fingerprint() == two.fingerprint()
    for split in SPLITS:
        assert torch.equal(whole(one, split)["images"], whole(two, split)["images"])
        assert torch.equal(whole(one, split)["labels"], whole(two, split)["labels"])


def test_the_seed_decides_no_part(tmp_path):
    write_images(tmp_path / "set", {"cat": 12, "dog": 12})
    data = folder(tmp_path)
    for split in SPLITS:
        one, other = (data.batch(draw(0, 1, seed=seed), split) for seed in (0, 1))
        assert torch.equal(one["images"], other["images"])


@BOTH_WAYS
def test_equal_files_stay_together(tmp_path, cache_gigabytes):
    paths = write_images(tmp_path / "set", {"cat": 30, "dog": 30})
    for number, path in enumerate(paths):
        (path.parent / f"copy{number}.png").write_bytes(path.read_bytes())
    data = folder(tmp_path, cache_gigabytes=cache_gigabytes)
    parts = [{image for image, _ in as_bytes(whole(data, split))} for split in SPLITS]
    assert sum(map(len, parts)) == 60
    assert sum(data.size(split) for split in SPLITS) == 120
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]


def test_equal_pixels_in_different_files_stay_together(tmp_path):
    paths = write_images(tmp_path / "set", {"cat": 30, "dog": 30})
    for path in paths:
        image = Image.open(path)
        path.with_name(f"{path.stem}-again.bmp").write_bytes(encode(image, "BMP"))
        path.with_name(f"{path.stem}-small.png").write_bytes(encode(image, compress_level=1, pnginfo=None, dpi=(9, 9)))
    data = folder(tmp_path)
    parts = [{image for image, _ in as_bytes(whole(data, split))} for split in SPLITS]
    assert [len(part) for part in parts] == [48, 6, 6]
    assert [data.size(split) for split in SPLITS] == [144, 18, 18]


def test_given_parts_are_kept(tmp_path):
    paths = {
        split: write_images(tmp_path / "set" / split, {"cat": 4, "dog": 4}, first=100 * number)
        for number, split in enumerate(("train", "val", "test"))
    }
    data = folder(tmp_path, normalize="none")
    assert data.labels() == ["cat", "dog"]
    for name, split in (("train", "train"), ("val", "validation"), ("test", "test")):
        want = {raw(path, int(path.parent.name == "dog")) for path in paths[name]}
        assert set(as_bytes(whole(data, split))) == want
    with pytest.raises(UserError, match=r"validation is 0.1, and data.source: folder .* has a validation part"):
        folder(tmp_path, validation=0.1)


def test_a_training_image_that_is_in_a_given_test_part_is_left_out(tmp_path, caplog):
    train = write_images(tmp_path / "set" / "train", {"cat": 10, "dog": 10})
    write_images(tmp_path / "set" / "test", {"cat": 2, "dog": 2}, first=100)
    (tmp_path / "set" / "test" / "cat" / "leak.bmp").write_bytes(encode(Image.open(train[0]), "BMP"))
    data = folder(tmp_path)
    assert [data.size(split) for split in SPLITS] == [17, 2, 5]
    assert "1 images of the published train part are also in a later part" in caplog.text


def test_classes_may_be_called_train_and_test(tmp_path):
    write_images(tmp_path / "set", {"train": 10, "test": 10})
    data = folder(tmp_path)
    assert data.labels() == ["test", "train"]
    assert sum(data.size(split) for split in SPLITS) == 20


# Damage


def damage(tmp_path):
    """Twelve sound images of a class, a truncated JPEG and a text; of another class ten."""
    write_images(tmp_path / "set", {"cat": 12, "dog": 10})
    truncated, text = tmp_path / "set" / "cat" / "truncated.jpg", tmp_path / "set" / "dog" / "text.jpg"
    truncated.write_bytes(encode(noise(64, 64), "JPEG")[:-900])
    text.write_text("This is a text.")
    return truncated, text


def test_text_that_is_called_an_image_is_found_at_the_start(tmp_path):
    _, text = damage(tmp_path)
    for cache_gigabytes in (4.0, 0.0):
        with pytest.raises(UserError, match="a damaged image file: no image that Pillow knows") as error:
            folder(tmp_path, cache_gigabytes=cache_gigabytes)
        assert error.value.where == str(text)
        assert "data.errors: skip" in error.value.fix


def test_a_truncated_image_is_found_at_the_start_where_images_are_kept_or_checked(tmp_path):
    truncated, text = damage(tmp_path)
    text.unlink()
    for knobs in ({}, {"cache_gigabytes": 0.0, "check": True}):
        with pytest.raises(UserError, match=r"a damaged image file: .*truncated") as error:
            folder(tmp_path, **knobs)
        assert error.value.where == str(truncated)


def test_a_truncated_image_is_named_when_it_is_met_otherwise(tmp_path):
    truncated, text = damage(tmp_path)
    text.unlink()
    data = all_training(tmp_path, cache_gigabytes=0.0)
    with pytest.raises(UserError, match="truncated") as error:
        whole(data, "train")
    assert error.value.where == str(truncated)


@pytest.mark.parametrize("knobs", [{}, {"cache_gigabytes": 0.0, "check": True}], ids=["kept", "checked"])
def test_damaged_files_are_left_out_and_counted(tmp_path, knobs, caplog):
    damage(tmp_path)
    data = all_training(tmp_path, errors="skip", **knobs)
    assert data.size("train") == 22
    assert data.labels() == ["cat", "dog"]
    assert float(whole(data, "train")["images"].amax((1, 2, 3)).min()) > 0
    counts = [int(record.args[0]) for record in caplog.records if "damaged image files are skipped" in record.message]
    assert sum(counts) == 2
    with pytest.raises(UserError, match="a damaged image file"):
        all_training(tmp_path, **knobs)


def test_a_damaged_file_that_is_met_late_is_an_empty_row(tmp_path, caplog):
    truncated, _ = damage(tmp_path)
    data = all_training(tmp_path, errors="skip", cache_gigabytes=0.0)
    assert data.size("train") == 23
    for _ in range(2):
        batch = whole(data, "train")
        (empty,) = torch.nonzero(batch["labels"] == -100).flatten().tolist()
        assert float(batch["images"][empty].abs().max()) == 0
    assert [record.message for record in caplog.records if "skipping" in record.message] == [
        f"skipping damaged image 1: {truncated}"
    ]


def test_a_file_that_changes_while_it_is_used_is_named(tmp_path):
    paths = write_images(tmp_path / "set", {"cat": 4})
    data = all_training(tmp_path, cache_gigabytes=0.0)
    paths[2].write_bytes(encode(noise(6, 8, seed=99)))
    with pytest.raises(UserError, match="changed while it was in use") as error:
        whole(data, "train")
    assert error.value.where == str(paths[2])


@BOTH_WAYS
def test_a_file_that_changed_between_runs_is_other_data(tmp_path, cache_gigabytes):
    paths = write_images(tmp_path / "set", {"cat": 12})
    before = all_training(tmp_path, cache_gigabytes=cache_gigabytes)
    status = paths[0].stat()
    paths[0].write_bytes(encode(noise(6, 8, seed=99)))
    os.utime(paths[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    after = all_training(tmp_path, cache_gigabytes=cache_gigabytes)
    assert after.fingerprint() != before.fingerprint()
    assert raw(paths[0], 0) in as_bytes(whole(after, "train"))


# What is refused


def test_a_folder_that_is_not_there_is_named_with_its_neighbours(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match=r"no folder .*photo; did you mean photos\?"):
        folder(tmp_path, root=tmp_path / "photo")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda root: root.mkdir(), "no class folder in"),
        (lambda root: (root / "cat").mkdir(parents=True), "no image in the class folder .*cat"),
        (lambda root: write_images(root, {".": 1, "cat": 2}), "an image that is in no class folder"),
        (
            lambda root: (write_images(root / "train", {"cat": 2}), write_images(root / "val", {"cats": 2})),
            "class 'cats' has images for validation or the test, and none for training",
        ),
        (lambda root: write_images(root, {"cat": 1}), r"the train part has no image \(train 0, validation 1, test 0\)"),
        (lambda root: write_images(root, {"cat": 2}), r"the train part has no image \(train 0, validation 1, test 1\)"),
    ],
    ids=["empty", "class", "stray", "typo", "one", "two"],
)
def test_folders_that_hold_no_data_set_are_refused(tmp_path, prepare, message):
    prepare(tmp_path / "set")
    with pytest.raises(UserError, match=message):
        folder(tmp_path)


def test_other_and_hidden_files_are_passed_over(tmp_path, caplog):
    write_images(tmp_path / "set", {"cat": 3, ".cache": 2, "dog/.thumbnails": 2, "dog": 3})
    for name in ("LICENSE", "cat/notes.txt", "cat/.hidden.png"):
        (tmp_path / "set" / name).write_text("text")
    with caplog.at_level(logging.INFO):
        data = all_training(tmp_path)
    assert data.labels() == ["cat", "dog"]
    assert data.size("train") == 6
    assert "1 files in" in caplog.text


def test_a_class_without_a_training_image_is_said(tmp_path, caplog):
    write_images(tmp_path / "set", {"cat": 30, **{f"rare{number}": 1 for number in range(20)}})
    folder(tmp_path, validation=0.3)
    assert "no training image of rare" in caplog.text


def test_prepared_data_goes_to_another_process_as_paths(tmp_path):
    write_images(tmp_path / "set", {"cat": 3, "dog": 3}, size=(200, 200))
    data = all_training(tmp_path, size=(200, 200))
    pickled = pickle.dumps(data)
    assert len(pickled) < 20_000
    assert torch.equal(whole(pickle.loads(pickled), "train")["images"], whole(data, "train")["images"])


@pytest.mark.slow
def test_two_processes_prepare_at_once(tmp_path):
    write_images(tmp_path / "set", {"cat": 100, "dog": 100}, size=(64, 64))
    code = """
import sys
from pathlib import Path
from zoo_builtin.data.images import Images
folder = Path(sys.argv[1])
config = Images.Config(source="folder", root=folder / "set", size=(32, 32))
data = Images(config, cache=folder / "cache")
data.prepare()
print(data.fingerprint(), data.size("train"))
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    lines = {process.communicate(timeout=120)[0] for process in processes}
    assert len(lines) == 1
    assert lines.pop().split()[1] == "160"
    assert len(list(tmp_path.rglob("*.tokens"))) == 3
    assert not list(tmp_path.rglob(".*tmp*"))
