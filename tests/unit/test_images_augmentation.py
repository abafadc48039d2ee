"""Augmentation: right values, drawn from (seed, epoch, sample id) alone, for training only."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from image_samples import draw, make, whole, write_images
from zoo.contracts.data import Draw
from zoo.data.augmentation import Augmentation, make_policy
from zoo.data.permutation import hash64

ALL = {"flip": True, "shift": 2, "augment": "rand-m9-mstd0.5-inc1"}
POLICIES = ["rand-m9-mstd0.5-inc1", "rand-m10-n4-p1-mstd2", "rand-m9-mmax20-mstd5-p1-inc1-n5", "rand-m5-tweights"]
POLICIES += ["v0", "v0r", "original-mstd0.5", "originalr", "3a", "augmix-m5-w4-d2", "augmix-m3-b1"]


def augmentation(flip=False, shift=0, policy=None, size=(5, 6), channels=3):
    return Augmentation(flip=flip, shift=shift, policy=policy, mean=[0.5] * channels, size=size)


def images(count, channels=3, height=5, width=6, dtype=np.uint8):
    pixels = np.random.default_rng(0).integers(1, 256, (count, channels, height, width), dtype=np.uint8)
    return pixels if dtype == np.uint8 else pixels.astype(np.float32) / 255


def test_a_flip_mirrors_about_half_of_the_images():
    before = images(400)
    after = augmentation(flip=True)(before.copy(), draw(*range(400)))
    mirrored = [np.array_equal(new, old[:, :, ::-1]) for old, new in zip(before, after, strict=True)]
    kept = [np.array_equal(new, old) for old, new in zip(before, after, strict=True)]
    assert all(one != other for one, other in zip(mirrored, kept, strict=True))
    assert 160 < sum(mirrored) < 240


def test_a_shift_moves_along_both_axes_and_black_comes_in():
    before = images(500)
    after = augmentation(shift=2)(before.copy(), draw(*range(500)))
    moves = set()
    for old, new in zip(before, after, strict=True):
        padded = np.pad(old, ((0, 0), (2, 2), (2, 2)))
        found = [
            (down, right)
            for down in range(-2, 3)
            for right in range(-2, 3)
            if np.array_equal(padded[:, 2 - down : 7 - down, 2 - right : 8 - right], new)
        ]
        assert len(found) == 1
        moves.add(found[0])
    assert len(moves) == 25


def test_a_shift_never_moves_an_image_out_of_sight():
    signal = images(50, channels=1, height=1, width=40, dtype=np.float32)
    after = augmentation(shift=3, size=(1, 40), channels=1)(signal.copy(), draw(*range(50)))
    assert ((after != 0).sum((1, 2, 3)) >= 37).all()
    assert not np.array_equal(after, signal)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("channels", "dtype"), [(1, np.float32), (3, np.uint8)])
def test_every_policy_works_on_grey_and_colour(policy, channels, dtype):
    before = images(40, channels, 16, 16, dtype)
    after = augmentation(policy=policy, size=(16, 16), channels=channels)(before.copy(), draw(*range(40)))
    assert (after.shape, after.dtype) == (before.shape, before.dtype)
    assert not np.array_equal(after, before)
    assert 0 <= after.min() <= after.max() <= (255 if dtype == np.uint8 else 1)


def test_a_policy_does_what_timm_does_with_the_generators_seeded_for_the_sample():
    before = images(6, 3, 16, 16)
    ours = augmentation(policy=POLICIES[0], size=(16, 16))(before.copy(), draw(3, 9, 4, 7, 0, 1, epoch=2, seed=5))
    policy = make_policy(POLICIES[0], [0.5] * 3, (16, 16))
    for row, sample in enumerate((3, 9, 4, 7, 0, 1)):
        word = int(hash64(5, 2, sample, 3)[0])
        random.seed(word)
        np.random.seed(word % 2**32)
        image = Image.fromarray(np.moveaxis(before[row], 0, 2))
        assert np.array_equal(np.moveaxis(np.asarray(policy(image)), 2, 0), ours[row])


def test_posterizing_to_no_bits_is_black_in_every_version_of_pillow():
    policy = make_policy("rand-m10-p1-inc1", [0.5] * 3, (16, 16))
    (operation,) = [each for each in policy.ops if each.name == "PosterizeIncreasing"]
    image = Image.new("RGB", (2, 2), (200, 100, 50))
    assert operation(image).getpixel((0, 0)) == (0, 0, 0)
    assert operation.aug_fn(image, 2).getpixel((0, 0)) == ImageOps.posterize(image, 2).getpixel((0, 0)) == (192, 64, 0)
    assert operation.aug_fn(image, 8) is image


def test_a_training_image_depends_on_seed_epoch_and_sample_alone(tmp_path):
    data = make(tmp_path, size=(16, 16), **ALL)
    samples, epochs = np.array([5, 9, 5, 100]), np.array([0, 3, 2, 3])
    together = data.batch(Draw(samples, epochs, 11), "train")["images"]
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    for row in range(4):
        alone = data.batch(Draw(samples[row : row + 1], epochs[row : row + 1], 11), "train")["images"]
        assert torch.equal(alone[0], together[row])
    assert not torch.equal(together[0], together[2])
    assert not torch.equal(data.batch(Draw(samples, epochs, 12), "train")["images"], together)
    with_empty = data.batch(Draw(np.array([-1, 9]), np.array([0, 3]), 11), "train")["images"]
    assert torch.equal(with_empty[1], together[1])
    assert float(with_empty[0].abs().max()) == 0


def test_the_global_generators_stay_where_they_were(tmp_path):
    data = make(tmp_path, size=(16, 16), **ALL)

    def following(samples):
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        data.batch(draw(*samples), "train")
        return random.gauss(0, 1), np.random.randn(), float(torch.randn(()))

    assert following(range(20)) == following([])


def test_only_training_images_are_changed(tmp_path):
    plain, changed = make(tmp_path), make(tmp_path, **ALL)
    for split in ("validation", "test"):
        assert torch.equal(whole(plain, split)["images"], whole(changed, split)["images"])
    assert not torch.equal(whole(plain, "train")["images"], whole(changed, "train")["images"])
    assert torch.equal(whole(plain, "train")["labels"], whole(changed, "train")["labels"])


@pytest.mark.slow
@pytest.mark.parametrize("kept", [4.0, 0.0])
def test_workers_change_nothing(tmp_path, kept):
    write_images(tmp_path / "set", {"cat": 12, "dog": 12}, size=(20, 24))
    data = make(tmp_path, source="folder", root=tmp_path / "set", size=(16, 16), cache_gigabytes=kept, **ALL)
    draws = [draw(*range(step, step + 6), epoch=step, seed=7) for step in range(8)]

    class Batches(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return data.batch(draws[index], "train")

        def __len__(self):
            return len(draws)

    batches = [
        list(torch.utils.data.DataLoader(Batches(), batch_size=None, num_workers=workers)) for workers in (0, 1, 2)
    ]
    for other in batches[1:]:
        for got, want in zip(other, batches[0], strict=True):
            assert torch.equal(got["images"], want["images"])
            assert torch.equal(got["labels"], want["labels"])
