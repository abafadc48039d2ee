"""Sets that torchvision reads, from small files in its own formats."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest
import torch

from image_samples import draw, make, whole
from zoo.contracts.data import Description
from zoo.errors import UserError


def write_mnist(root, name="MNIST", train=50, test=10):
    """Files as Yann LeCun published them, of random digits."""
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    arrays = {}
    for part, prefix, count in (("train", "train", train), ("test", "t10k", test)):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8) % 10
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, count, 28, 28) + images.tobytes())
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, count) + labels.tobytes())
        arrays[part] = (images, labels)
    return arrays


def write_cifar10(root, monkeypatch):
    """Batches as Alex Krizhevsky published them, of random images."""
    from torchvision.datasets import CIFAR10

    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (60, 3, 32, 32), dtype=np.uint8)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    for at, name in enumerate(names):
        part = images[at * 10 : (at + 1) * 10].reshape(10, -1)
        (folder / name).write_bytes(pickle.dumps({"data": part, "labels": list(range(10))}))
    classes = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": classes}))
    monkeypatch.setattr(CIFAR10, "train_list", [[name, None] for name in names[:5]])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", None]])
    monkeypatch.setattr(CIFAR10, "meta", {"filename": "batches.meta", "key": "label_names", "md5": None})
    return images, classes


def test_mnist_keeps_its_published_test_part(tmp_path):
    arrays = write_mnist(tmp_path)
    data = make(tmp_path, source="torchvision", dataset="MNIST", root=tmp_path, normalize="none")
    assert data.describe() == Description(classes=10, image_size=(28, 28), channels=1)
    assert data.labels()[:2] == ["0 - zero", "1 - one"]
    assert [data.size(split) for split in ("train", "validation", "test")] == [45, 5, 10]
    test = whole(data, "test")
    images, labels = arrays["test"]
    torch.testing.assert_close(test["images"][:, 0], torch.from_numpy(images) / 255, rtol=0, atol=1e-7)
    assert test["labels"].tolist() == labels.tolist()


def test_cifar10_has_colours_and_can_be_enlarged(tmp_path, monkeypatch):
    images, classes = write_cifar10(tmp_path, monkeypatch)
    knobs = {"source": "torchvision", "dataset": "CIFAR10", "root": tmp_path, "normalize": "none"}
    data = make(tmp_path, **knobs)
    assert data.describe() == Description(classes=10, image_size=(32, 32), channels=3)
    assert data.labels() == classes
    torch.testing.assert_close(whole(data, "test")["images"], torch.from_numpy(images[50:]) / 255, rtol=0, atol=1e-7)
    grey = make(tmp_path, size=(48, 40), channels=1, **knobs)
    assert grey.batch(draw(0, 1), "train")["images"].shape == (2, 1, 48, 40)


def test_a_set_that_is_not_there_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match="torchvision's FashionMNIST isn't in") as error:
        make(tmp_path, source="torchvision", dataset="FashionMNIST", root=tmp_path)
    assert error.value.where == "data.root"
    assert "set data.download: true on a machine with a network" in error.value.fix


def test_a_download_without_a_network_says_what_to_do(tmp_path, monkeypatch):
    def unreachable(*args, **others):
        raise OSError("Network is unreachable")

    monkeypatch.setattr("torchvision.datasets.utils._urlretrieve", unreachable)
    for name in ("MNIST", "CIFAR100"):
        with pytest.raises(UserError, match=f"{name} can't be downloaded") as error:
            make(tmp_path, source="torchvision", dataset=name, root=tmp_path / "sets", download=True)
        assert f"copy the folder in which torchvision keeps {name}" in error.value.fix
