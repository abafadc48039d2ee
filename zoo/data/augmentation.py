"""Random changes to training images, each drawn from (seed, epoch, sample id) and from nothing else.

    image -> mirrored or not -> moved by up to ``shift`` pixels, black coming in -> a policy of timm

Policies draw from the generators of Python, NumPy and torch; these are seeded for each image and put back after.
Sources: Cubuk et al., "AutoAugment" (2019), arXiv 1805.09501; Cubuk et al., "RandAugment" (2020), arXiv 1909.13719;
Hendrycks et al., "AugMix" (2020), arXiv 1912.02781.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

from zoo.contracts.data import Draw
from zoo.data.image_files import to_array, to_image
from zoo.data.permutation import hash64
from zoo.errors import UserError

_FLIP, _DOWN, _RIGHT, _POLICY = range(4)
_SECTION = re.compile(r"tweights|t3aw?|(?!t)[a-z]+\d\S*")  # what timm reads; it passes over anything else


class Augmentation:
    """What happens to a training image.

    Args:
        flip: mirror half of the images, left to right.
        shift: move by up to so many pixels, but never out of sight, along each axis.
        policy: a policy of timm, ``None`` for none.
        mean: grey level from 0 to 1 of each channel, which a policy puts where an image has been moved away.
        size: height and width.

    Raises:
        UserError: no such policy.
    """

    def __init__(
        self, *, flip: bool, shift: int, policy: str | None, mean: Sequence[float], size: tuple[int, int]
    ) -> None:
        self.flip, self.shift = flip, shift
        self.policy = make_policy(policy, mean, size) if policy else None

    def __call__(self, pixels_BCHW: np.ndarray, draw: Draw) -> np.ndarray:
        """Changed images.

        Args:
            pixels_BCHW: uint8, or float32 (with a policy: from 0 to 1); changed in place where that will do.
            draw: of these images.

        Returns:
            (B, C, H, W), dtype as before.
        """
        if self.flip:
            chosen = _drawn(draw, _FLIP) & np.uint64(1) == 1
            pixels_BCHW[chosen] = pixels_BCHW[chosen, :, :, ::-1]
        if self.shift:
            pixels_BCHW = self._move(pixels_BCHW, draw)
        return self._apply_policy(pixels_BCHW, draw) if self.policy and len(pixels_BCHW) else pixels_BCHW

    def _move(self, pixels_BCHW: np.ndarray, draw: Draw) -> np.ndarray:
        moved = np.zeros_like(pixels_BCHW)
        height, width = pixels_BCHW.shape[2:]
        downs, rights = self._steps(draw, _DOWN, height), self._steps(draw, _RIGHT, width)
        for row, (down, right) in enumerate(zip(downs, rights, strict=True)):
            to_y, from_y = _overlap(down, height)
            to_x, from_x = _overlap(right, width)
            moved[row, :, to_y, to_x] = pixels_BCHW[row, :, from_y, from_x]
        return moved

    def _steps(self, draw: Draw, salt: int, size: int) -> list[int]:
        most = min(self.shift, size - 1)
        return [int(word % np.uint64(2 * most + 1)) - most for word in _drawn(draw, salt)]

    def _apply_policy(self, pixels_BCHW: np.ndarray, draw: Draw) -> np.ndarray:
        is_float = pixels_BCHW.dtype != np.uint8
        levels = np.rint(pixels_BCHW * 255).astype(np.uint8) if is_float else pixels_BCHW
        with _own_generators() as seed:
            changed = np.stack(
                [self._change(levels[row], seed, word) for row, word in enumerate(_drawn(draw, _POLICY))]
            )
        return changed.astype(np.float32) / 255 if is_float else changed

    def _change(self, levels_CHW: np.ndarray, seed: Callable[[int], None], word: Any) -> np.ndarray:
        assert self.policy is not None
        seed(int(word))
        image = self.policy(to_image(levels_CHW).convert("RGB"))  # grey too: some of timm's changes know RGB alone
        return to_array(image.convert("L") if len(levels_CHW) == 1 else image)


def make_policy(text: str, mean: Sequence[float], size: tuple[int, int]) -> Callable[[Any], Any]:
    """A policy of timm, with what timm itself sets for training with it.

    Raises:
        UserError: timm doesn't know it.
    """
    from timm.data.auto_augment import augment_and_mix_transform, auto_augment_transform, rand_augment_transform

    name, *sections = text.split("-")
    make = {"rand": rand_augment_transform, "augmix": augment_and_mix_transform}.get(name, auto_augment_transform)
    grey = [min(255, round(255 * level)) for level in mean]
    try:
        unknown = [section for section in sections if not _SECTION.fullmatch(section)]
        if unknown:
            raise ValueError(f"section {unknown[0]!r}")
        policy = make(text, {"translate_const": int(min(size) * 0.45), "img_mean": tuple(grey * 3)[:3]})
    except (AssertionError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"no augmentation policy {text!r}: {error or 'unknown to timm'}",
            where="data.augment",
            fix="write one as timm does: rand-m9-mstd0.5-inc1, augmix-m3-w3, original-mstd0.5, v0, 3a",
        ) from error
    for operation in _operations(policy):
        if operation.name.startswith("Posterize"):
            operation.aug_fn = _posterize
    return policy


def _operations(policy: Any) -> list[Any]:
    return policy.ops if hasattr(policy, "ops") else [operation for group in policy.policy for operation in group]


def _posterize(image: Image.Image, bits: int, **_: Any) -> Image.Image:
    """Keep the highest bits; with none the image is black, which Pillow did up to 12 and refuses from 13 on."""
    if bits >= 8:
        return image
    return ImageOps.posterize(image, bits) if bits > 0 else Image.new(image.mode, image.size)


def _drawn(draw: Draw, salt: int) -> np.ndarray:
    """(B,) uint64, a random word for each sample."""
    return hash64(draw.seed, draw.epochs, draw.samples, salt)


def _overlap(step: int, size: int) -> tuple[slice, slice]:
    """Where pixels go and where they come from along an axis of ``size`` when they move by ``step``."""
    return slice(max(0, step), size + min(0, step)), slice(max(0, -step), size - max(0, step))


@contextlib.contextmanager
def _own_generators() -> Iterator[Callable[[int], None]]:
    """A function that seeds the global generators; they are put back at the end. Those of GPUs aren't touched."""
    python, numpy = random.getstate(), np.random.get_state()

    def seed(word: int) -> None:
        random.seed(word)
        np.random.seed(word & 0xFFFF_FFFF)
        torch.default_generator.manual_seed(word & 0x7FFF_FFFF_FFFF_FFFF)

    try:
        with torch.random.fork_rng(devices=[]):
            yield seed
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
