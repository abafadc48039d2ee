"""Labelled images: digits of scikit-learn, MNIST-1D, your own folders, or sets that torchvision reads.

    image (C, H, W), 0 to 1, changed at random if it is for training;  input = (image - mean) / deviation

Mean and deviation of each channel are those of the train part. Equal images are always in one part, and what is in
which part depends on the images alone. 1-D signals are images of height 1. Cost of a batch of 32: 0.02 ms for digits,
3 ms for photos of 224 x 224 that are kept decoded, 70 ms for those that are not.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from zoo.contracts.data import Data, Description, Draw, Split
from zoo.data.augmentation import Augmentation, make_policy
from zoo.data.image_files import DamagedImageError, Fit, Form, decode
from zoo.data.image_folder import ImageFolder, OnDamage
from zoo.data.image_sets import (
    ImageSet,
    TorchvisionName,
    measure_images,
    open_digits,
    open_mnist1d,
    open_torchvision,
    split_images,
)
from zoo.data.splits import check_shares
from zoo.data.token_cache import Tokens, open_or_build
from zoo.errors import UserError

__all__ = ["Images"]

logger = logging.getLogger(__name__)

_NO_LABEL = -100
_SHARE = 0.1
_MEASURED = 2048  # images of a folder that isn't kept decoded, from which mean and deviation are taken

_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

_ONLY_FOR = {
    "root": ("folder", "torchvision"),
    "dataset": ("torchvision",),
    "download": ("torchvision",),
    "errors": ("folder",),
    "check": ("folder",),
    "cache_gigabytes": ("folder",),
    "size": ("digits", "folder", "torchvision"),
    "augment": ("digits", "folder", "torchvision"),
}
"""Knobs that mean nothing for some sources."""


class Images(Data):
    """Images with a class each."""

    @dataclasses.dataclass(kw_only=True)
    class Config(Data.Config):
        """Where the images come from, and how they are shown."""

        source: Literal["digits", "mnist1d", "folder", "torchvision"] = "digits"
        """``digits`` (1,797 of 8 x 8 pixels), ``mnist1d`` (5,000 signals of 40 points), ``folder`` or
        ``torchvision``."""
        root: Path | None = None
        """Of ``folder``: the folder of class folders, or of ``train``, ``val`` and ``test`` with class folders in
        each. Of ``torchvision``: where it keeps its sets."""
        dataset: TorchvisionName | None = None
        """Set of ``torchvision``."""
        download: bool = False
        """Let torchvision get the set from the network if it isn't there."""
        size: tuple[int, int] | None = None
        """Height and width that images are brought to; null means the set's own. A folder has none."""
        fit: Fit = "crop"
        """Images of another shape: ``crop`` the middle, ``stretch``, or ``pad`` with the background."""
        channels: int | None = None
        """1 for grey, 3 for RGB; null means the set's own, and 3 for a folder."""
        background: int = 255
        """Grey level, 0 to 255, behind transparent pixels and around padded images."""
        errors: OnDamage = "error"
        """Damaged files: stop and name the file, or ``skip`` them and say how many."""
        check: bool = False
        """Decode every file once before training, to find damaged ones, even if the folder exceeds
        ``cache_gigabytes``; one that doesn't is always checked."""
        cache_gigabytes: float = 4.0
        """A folder whose decoded images take no more is decoded once and kept; a larger one anew for each batch."""
        validation: float | None = None
        """Share of the images for validation; 0 for none. Null means the published part, or 0.1 where there is
        none."""
        test: float | None = None
        """Share of the images for the final test; 0 for none. Null means the published part, or 0.1 where there is
        none."""
        normalize: Literal["data", "imagenet", "none"] = "data"
        """Mean and deviation that are taken out: those of the train part, those of ImageNet (for weights that were
        trained with them), or none, which leaves 0 to 1."""
        flip: bool = False
        """Mirror half of the training images, left to right."""
        shift: int = 0
        """Move training images by up to so many pixels along each axis, at random; black comes in."""
        augment: str | None = None
        """Policy of timm for training images, for example ``rand-m9-mstd0.5-inc1``."""

    def __init__(self, config: Any, *, cache: Path) -> None:
        super().__init__(config, cache=cache)
        _check_config(config)
        self._images: ImageSet | None = None
        self._parts: dict[Split, np.ndarray] = {}
        self._state: dict[str, Any] = {}
        self._augmentation: Augmentation | None = None

    def prepare(self) -> None:
        """Find and split the images, decode and keep what may be kept, measure mean and deviation; or find that done.

        Raises:
            UserError: a missing or damaged source, a part without an image, shares where a part is published.
        """
        if self._images is not None:
            return
        images = self._open()
        self._parts = split_images(images, **self._shares(images))
        self._check_parts(images)
        if self._state:
            self._adapt(images)
        else:
            self._state = self._facts(images)
        self._augmentation = self._make_augmentation(images.form)
        self._images = images

    def state(self) -> Mapping[str, Any]:
        """What it takes to show a model other images as it has seen these, as plain JSON; empty before ``prepare``."""
        return self._state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take classes, sizes, mean and deviation from another set's ``state``, instead of measuring; before
        ``prepare``.
        """
        self._state = dict(state)

    def describe(self) -> Description:
        """Number of classes, height and width, channels."""
        channels, height, width = self._known["shape"]
        return Description(classes=len(self._known["classes"]), image_size=(height, width), channels=channels)

    def labels(self) -> Sequence[str]:
        """Names of the classes."""
        return list(self._known["classes"])

    def size(self, split: Split) -> int:
        """Number of images in a part."""
        self._prepared()
        return len(self._parts[split])

    def batch(self, draw: Draw, split: Split) -> dict[str, Tensor]:
        """Images of a part.

        Returns:
            images: (B, C, H, W) float32, normalized; 0 in an empty row.
            labels: (B,) int64, index in ``labels()``; -100 in an empty row, and where a damaged file is skipped.
        """
        images, size = self._prepared(), self.size(split)
        if draw.samples.size and draw.samples.max() >= size:
            raise IndexError(f"sample {draw.samples.max()} of {size} in the {split} part")
        real = np.flatnonzero(draw.samples >= 0)
        drawn = Draw(draw.samples[real], draw.epochs[real], draw.seed)
        rows = self._parts[split][drawn.samples]
        pixels, readable = images.read(rows)
        if split == "train" and self._augmentation is not None:
            pixels = self._augmentation(pixels, drawn)
        shown = self._normalize(pixels)
        if not readable.all():
            shown[~readable] = 0
        labels = torch.from_numpy(np.where(readable, images.labels[rows], _NO_LABEL))
        if len(real) == len(draw.samples):
            return {"images": shown, "labels": labels}
        filled = torch.zeros(len(draw.samples), *images.form.shape)
        filled[real] = shown
        all_labels = torch.full((len(draw.samples),), _NO_LABEL)
        all_labels[real] = labels
        return {"images": filled, "labels": all_labels}

    def read_inputs(self, paths: Sequence[Path]) -> Tensor:
        """Image files from anywhere as the model gets images; after ``prepare`` or ``restore``.

        Returns:
            (B, C, H, W) float32, normalized.

        Raises:
            UserError: a missing or damaged file, or a set of signals, which no image file holds.
        """
        if self.config.source == "mnist1d":
            raise UserError("mnist1d holds signals, and a file with an image isn't one", where="data.source")
        channels, height, width = self._known["shape"]
        form = Form(size=(height, width), channels=channels, fit=self.config.fit, background=self.config.background)
        pixels = [_decode_input(Path(path), form) for path in paths]
        return self._normalize(np.stack(pixels) if pixels else np.zeros((0, *form.shape), dtype=np.uint8))

    def fingerprint(self) -> str:
        """Hash of the images, of their split, and of all that shapes what the model is shown."""
        images = self._prepared()
        knobs = {name: getattr(self.config, name) for name in ("fit", "background", "flip", "shift", "augment")}
        parts = {split: images.content(rows) for split, rows in self._parts.items()}
        return hashlib.sha256(json.dumps([parts, self._state, knobs], sort_keys=True).encode()).hexdigest()

    @property
    def _known(self) -> dict[str, Any]:
        if not self._state:
            raise RuntimeError("data is read before prepare()")
        return self._state

    def _prepared(self) -> ImageSet:
        if self._images is None:
            raise RuntimeError("data is read before prepare()")
        return self._images

    def _open(self) -> ImageSet:
        config = self.config
        shown = {name: getattr(config, name) for name in ("size", "channels", "fit", "background")}
        if config.source == "digits":
            return open_digits(**shown)
        if config.source == "mnist1d":
            return open_mnist1d(**shown)
        root = config.root.expanduser()
        if config.source == "torchvision":
            return open_torchvision(config.dataset, root, download=config.download, **shown)
        form = Form(**{**shown, "channels": config.channels or 3})
        budget = config.cache_gigabytes * 2**30
        return ImageFolder(root, form, errors=config.errors, check=config.check, budget=budget, cache=self.cache)

    def _shares(self, images: ImageSet) -> dict[str, float]:
        shares = {}
        for split in ("validation", "test"):
            said, published = getattr(self.config, split), split in images.given
            if published and said is not None:
                raise UserError(
                    f"{split} is {said}, and {self._name()} has a {split} part of its own",
                    where=f"data.{split}",
                    fix="leave it at null, which means the published part",
                )
            shares[split] = 0.0 if published else _SHARE if said is None else said
        return shares

    def _check_parts(self, images: ImageSet) -> None:
        counts = {split: len(rows) for split, rows in self._parts.items()}
        for split, count in counts.items():
            if not count and (split == "train" or getattr(self.config, split) != 0):
                told = ", ".join(f"{other} {number}" for other, number in counts.items())
                raise UserError(
                    f"the {split} part has no image ({told})",
                    where=self._name(),
                    fix="add images, or change data.validation and data.test; 0 means none",
                )
            if not count:
                logger.info("no %s: data.%s is 0", split, split)
        trained = set(images.labels[self._parts["train"]].tolist())
        if missing := [name for at, name in enumerate(images.classes) if at not in trained]:
            logger.warning("no training image of %s", ", ".join(missing))

    def _adapt(self, images: ImageSet) -> None:
        """Show the images as those were shown that the restored state comes from."""
        if list(images.form.shape) != self._state["shape"]:
            raise UserError(
                f"the images are {images.form.shape} (channels, height, width), and the model was trained on "
                f"{tuple(self._state['shape'])}",
                where=self._name(),
                fix="set data.size and data.channels as they were in training",
            )
        images.relabel(self._state["classes"])

    def _name(self) -> str:
        words = (self.config.dataset, self.config.root)
        return " ".join(["data.source:", self.config.source, *(str(word) for word in words if word)])

    def _facts(self, images: ImageSet) -> dict[str, Any]:
        mean, std = self._statistics(images)
        return {"classes": list(images.classes), "shape": list(images.form.shape), "mean": mean, "std": std}

    def _statistics(self, images: ImageSet) -> tuple[list[float], list[float]]:
        channels = images.form.channels
        if self.config.normalize == "none":
            return [0.0] * channels, [1.0] * channels
        if self.config.normalize == "imagenet":
            if channels != 3:
                what = f"ImageNet's mean and deviation are of 3 channels, and the images have {channels}"
                raise UserError(what, where="data.normalize", fix="set normalize: data, or channels: 3")
            return list(_IMAGENET_MEAN), list(_IMAGENET_STD)
        rows = self._parts["train"]
        if not images.decoded:
            rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _MEASURED)).astype(np.int64))]
        identity = {"images": images.content(rows), "form": dataclasses.asdict(images.form)}
        measured = open_or_build(
            self.cache / "statistics",
            identity,
            lambda: Tokens(vocab_size=1, parts={}, notes=measure_images(images, rows)),
        )
        return measured.notes["mean"], measured.notes["std"]

    def _make_augmentation(self, form: Form) -> Augmentation | None:
        config = self.config
        if not (config.flip or config.shift or config.augment):
            return None
        mean = self._state["mean"]
        return Augmentation(flip=config.flip, shift=config.shift, policy=config.augment, mean=mean, size=form.size)

    def _normalize(self, pixels_BCHW: np.ndarray) -> Tensor:
        shown_BCHW = torch.from_numpy(np.ascontiguousarray(pixels_BCHW))
        shown_BCHW = shown_BCHW / 255 if shown_BCHW.dtype == torch.uint8 else shown_BCHW.float()
        mean_C11, std_C11 = (torch.tensor(self._known[name])[:, None, None] for name in ("mean", "std"))
        return shown_BCHW.sub_(mean_C11).div_(std_C11)


def _check_config(config: Images.Config) -> None:
    _check_source(config)
    if config.size is not None and min(config.size) < 1:
        raise UserError(f"an image has at least 1 x 1 pixels, not {config.size}", where="data.size")
    if config.channels not in (None, 1, 3):
        raise UserError(f"channels is {config.channels}", where="data.channels", fix="1 is grey, 3 is RGB")
    if not 0 <= config.background <= 255:
        raise UserError(f"a grey level is from 0 to 255, not {config.background}", where="data.background")
    if config.cache_gigabytes < 0 or config.shift < 0:
        name = "shift" if config.shift < 0 else "cache_gigabytes"
        raise UserError(f"{name} is {getattr(config, name)}, below 0", where=f"data.{name}")
    check_shares(config.validation or 0, config.test or 0)
    if config.augment is not None:
        make_policy(config.augment, [0.5], (32, 32))


def _check_source(config: Images.Config) -> None:
    usual = Images.Config()
    for name, sources in _ONLY_FOR.items():
        if config.source not in sources and getattr(config, name) != getattr(usual, name):
            raise UserError(
                f"{name} is {getattr(config, name)}, and source {config.source} has no use for it",
                where=f"data.{name}",
                fix=f"remove it, or choose a source: {', '.join(sources)}",
            )
    needed = {"folder": ("root", "size"), "torchvision": ("root", "dataset")}
    for name in needed.get(config.source, ()):
        if getattr(config, name) is None:
            fix = "set it, for example to [224, 224]" if name == "size" else "set it"
            raise UserError(f"source {config.source} needs data.{name}", where=f"data.{name}", fix=fix)


def _decode_input(path: Path, form: Form) -> np.ndarray:
    try:
        return decode(path.read_bytes(), form)
    except (OSError, DamagedImageError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"can't read an image: {reason}", where=str(path), fix="give image files") from error
