"""Sets of labelled images: what they hold, which images are the same one, and the parts they are split into.

Equal images, wherever they come from, are always in one part. A published test part stays as it is; what is also in
it is left out of the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from zoo.contracts.data import Split
from zoo.data.image_files import Fit, Form, fit_image, to_array, to_image
from zoo.data.mnist1d import CLASSES, TRAIN, make_mnist1d
from zoo.data.splits import deal
from zoo.data.token_cache import locked
from zoo.errors import UserError

TorchvisionName = Literal["MNIST", "FashionMNIST", "CIFAR10", "CIFAR100"]

logger = logging.getLogger(__name__)

_MEASURED_AT_ONCE = 256


class ImageSet(ABC):
    """Labelled images of one form, by row.

    Attributes:
        form: size and channels.
        classes: names of the classes.
        labels: (N,) int64, index of each image's class.
        keys: of each image; equal keys are equal images, and their order is that of dealing out.
        given: of each image, ``test`` or ``validation`` if that was published apart, ``None`` for the rest.
        decoded: whether reading an image costs next to nothing.
    """

    form: Form
    classes: Sequence[str]
    labels: np.ndarray
    keys: Sequence[bytes]
    given: Sequence[Split | None]
    decoded: bool = True

    @abstractmethod
    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images.

        Args:
            rows: (B,) int64.

        Returns:
            pixels: (B, C, H, W), uint8 from 0 to 255, or float32 as they are; the caller's own.
            readable: (B,) bool; where it is false, the pixels are 0.
        """

    def content(self, rows: np.ndarray) -> str:
        """Hash of images with their classes."""
        digest = hashlib.sha256()
        for row in rows:
            digest.update(self.keys[row] + self.classes[self.labels[row]].encode() + b"\0")
        return digest.hexdigest()

    def relabel(self, classes: Sequence[str]) -> None:
        """Use another list of classes, of which this set's are some.

        Raises:
            UserError: a class that isn't in the list.
        """
        if unknown := [name for name in self.classes if name not in classes]:
            raise UserError(
                f"class {unknown[0]!r} isn't one of those that the model was trained on: {', '.join(classes)}",
                where="data",
                fix="name the classes as they were in training",
            )
        self.labels = np.array([classes.index(name) for name in self.classes], dtype=np.int64)[self.labels]
        self.classes = list(classes)


class StoredImages(ImageSet):
    """Images that are in memory.

    Args:
        pixels: (N, C, H, W), uint8 or float32.
        labels: (N,).
        classes: names of the classes.
        size, channels: what is wanted; ``None`` for what the images have.
        fit, background: as in ``Form``.
        given: as in ``ImageSet``.
    """

    def __init__(
        self,
        pixels: np.ndarray,
        labels: Any,
        classes: Sequence[str],
        *,
        size: tuple[int, int] | None = None,
        channels: int | None = None,
        fit: Fit = "crop",
        background: int = 255,
        given: Sequence[Split | None] | None = None,
    ) -> None:
        _, own_channels, height, width = pixels.shape
        self.pixels = np.ascontiguousarray(pixels)
        self.form = Form(
            size=size or (height, width), channels=channels or own_channels, fit=fit, background=background
        )
        self.labels = np.asarray(labels, dtype=np.int64)
        self.classes = list(classes)
        self.keys = [hashlib.sha256(image.data).digest() for image in self.pixels]
        self.given = given or [None] * len(pixels)

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images, resized if the form says so."""
        pixels = self.pixels[rows]
        if pixels.shape[1] == 3 and self.form.channels == 1:
            pixels = self._each(pixels, lambda image: to_array(to_image(image).convert("L")))
        if pixels.shape[2:] != self.form.size:
            pixels = self._each(pixels, self._resize)
        if pixels.shape[1] == 1 and self.form.channels == 3:
            pixels = pixels.repeat(3, axis=1)
        return pixels, np.ones(len(rows), dtype=bool)

    def _each(self, pixels: np.ndarray, change: Any) -> np.ndarray:
        return np.stack([change(image) for image in pixels]) if len(pixels) else np.zeros((0, *self.form.shape))

    def _resize(self, pixels: np.ndarray) -> np.ndarray:
        resized = to_array(fit_image(to_image(pixels), self.form))
        return resized if resized.dtype == np.uint8 else resized.clip(0, 1)  # bicubic overshoots at edges


def split_images(images: ImageSet, *, validation: float, test: float) -> dict[Split, np.ndarray]:
    """Rows of each part, ascending.

    Args:
        images: published parts stay as they are; the rest is dealt out in the order of the keys.
        validation: share, at least, of the images that are in no published part; 0 for none.
        test: the same.
    """
    taken: set[bytes] = set()
    parts: dict[Split, list[int]] = {"train": [], "validation": [], "test": []}
    published: tuple[Split, ...] = ("test", "validation")
    for split in published:
        parts[split] = _not_taken(images, split, taken)
        taken.update(images.keys[row] for row in parts[split])
    free = _not_taken(images, None, taken)
    for split, dealt in _deal(images, free, {"validation": validation, "test": test}).items():
        parts[split] += dealt
    return {split: np.sort(np.array(rows, dtype=np.int64)) for split, rows in parts.items()}


def _not_taken(images: ImageSet, split: Split | None, taken: set[bytes]) -> list[int]:
    """Rows of a published part, or of none, without images that are in another published part."""
    rows = [row for row, given in enumerate(images.given) if given == split]
    left = [row for row in rows if images.keys[row] not in taken]
    if len(left) < len(rows):
        logger.warning(
            "%d images of the published %s part are also in a later part, and left out here",
            len(rows) - len(left),
            split or "train",
        )
    return left


def _deal(images: ImageSet, rows: list[int], shares: Mapping[Split, float]) -> dict[Split, list[int]]:
    def key(row: int) -> bytes:
        return images.keys[row]

    groups = [list(group) for _, group in itertools.groupby(sorted(rows, key=key), key=key)]
    return deal(groups, {split: share * len(rows) for split, share in shares.items()}, lambda row: 1)


def measure_images(images: ImageSet, rows: np.ndarray) -> dict[str, list[float]]:
    """Mean and deviation of each channel, from exact sums where pixels are whole numbers.

    Returns:
        ``mean`` and ``std``, on a scale of 0 to 1 for uint8; a channel that never changes has the deviation 1.
    """
    count, total, squares, scale = 0, np.zeros(images.form.channels), np.zeros(images.form.channels), 1
    for begin in range(0, len(rows), _MEASURED_AT_ONCE):
        pixels, readable = images.read(rows[begin : begin + _MEASURED_AT_ONCE])
        is_whole = pixels.dtype == np.uint8
        wide = pixels[readable].astype(np.int64 if is_whole else np.float64)
        count, scale = count + wide[:, 0].size, 255 if is_whole else 1
        total += wide.sum((0, 2, 3))
        squares += (wide * wide).sum((0, 2, 3))
    mean = total / max(count, 1)
    std = np.sqrt(np.maximum(squares / max(count, 1) - mean**2, 0))
    # Rounded, so that the last bits of a machine's sums don't make another set of it.
    return {
        "mean": [round(float(value), 6) for value in mean / scale],
        "std": [round(float(value), 6) or 1.0 for value in std / scale],
    }


def open_digits(**form: Any) -> StoredImages:
    """1,797 handwritten digits of 8 x 8 pixels with 17 grey levels, here 0 to 1 (Alpaydin and Kaynak, 1998).

    The test part, with which scikit-learn ships the set, of "Optical Recognition of Handwritten Digits".
    """
    from sklearn.datasets import load_digits  # takes about a second

    digits = load_digits()
    pixels = (digits.images / 16).astype(np.float32)[:, None]
    return StoredImages(pixels, digits.target, [str(name) for name in digits.target_names], **form)


def open_mnist1d(**form: Any) -> StoredImages:
    """MNIST-1D as published: 4,000 signals for training and 1,000 for the test, images of 1 x 40 pixels."""
    signals, digits = make_mnist1d()
    given = _published_test(TRAIN, len(digits) - TRAIN)
    pixels = signals.astype(np.float32)[:, None, None]
    return StoredImages(pixels, digits, [str(digit) for digit in range(CLASSES)], given=given, **form)


def open_torchvision(name: TorchvisionName, root: Path, *, download: bool, **form: Any) -> StoredImages:
    """A set that torchvision reads, with its published test part.

    Args:
        name: the class in ``torchvision.datasets``.
        root: the folder that torchvision keeps it in.
        download: get it from the network if it isn't there.
        form: as in ``StoredImages``.

    Raises:
        UserError: it isn't there, or can't be downloaded.
    """
    import torchvision.datasets

    try:
        with _one_at_a_time(root) if download else contextlib.nullcontext():
            make = getattr(torchvision.datasets, name)
            train, test = (make(str(root), train=is_train, download=download) for is_train in (True, False))
    except (RuntimeError, OSError) as error:
        raise _not_there(name, root, download, error) from error
    pixels = np.concatenate([_as_BCHW(train.data), _as_BCHW(test.data)])
    labels = np.concatenate([np.asarray(train.targets), np.asarray(test.targets)])
    given = _published_test(len(train.data), len(test.data))
    return StoredImages(pixels, labels, train.classes, given=given, **form)


def _published_test(train: int, test: int) -> list[Split | None]:
    return [None if row < train else "test" for row in range(train + test)]


def _one_at_a_time(root: Path) -> Any:
    root.mkdir(parents=True, exist_ok=True)
    return locked(root / ".lock")


def _not_there(name: str, root: Path, download: bool, error: Exception) -> UserError:
    first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
    if download:
        what = f"{name} can't be downloaded: {first_line}"
        fix = f"copy the folder in which torchvision keeps {name} from a machine with a network into {root}"
    else:
        what = f"torchvision's {name} isn't in {root}: {first_line}"
        fix = "set data.download: true on a machine with a network, or data.root to the folder that holds it"
    return UserError(what, where="data.root", fix=fix)


def _as_BCHW(pixels: Any) -> np.ndarray:
    """Torchvision keeps (N, H, W) tensors or (N, H, W, 3) arrays."""
    array = np.asarray(pixels)
    return array[:, None] if array.ndim == 3 else np.moveaxis(array, 3, 1)
