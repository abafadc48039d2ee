"""Image files and image data for tests, made on the spot."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from zoo.contracts.data import Draw, Split
from zoo.data.image_files import Form, decode
from zoo_builtin.data.images import Images


def encode(image: Image.Image, file_format: str = "PNG", **options: Any) -> bytes:
    """The bytes of a file."""
    stream = io.BytesIO()
    image.save(stream, file_format, **options)
    return stream.getvalue()


def noise(height: int, width: int, seed: int = 0, channels: int = 3) -> Image.Image:
    """An image of random bytes."""
    shape = (height, width) if channels == 1 else (height, width, channels)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def form(height: int, width: int, channels: int = 3, **others: Any) -> Form:
    """A form by its sizes."""
    return Form(size=(height, width), channels=channels, **others)


def pixels(data: bytes, height: int, width: int, channels: int = 3, **others: Any) -> list[Any]:
    """Decoded (H, W, C) values as nested lists."""
    return np.moveaxis(decode(data, form(height, width, channels, **others)), 0, 2).tolist()


def write_images(root: Path, counts: dict[str, int], *, size: tuple[int, int] = (6, 8), first: int = 0) -> list[Path]:
    """``counts`` PNG files of noise in each class folder, all different."""
    paths = []
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            path = root / name / f"{number}.png"
            path.write_bytes(encode(noise(*size, seed=first + len(paths))))
            paths.append(path)
    return paths


def draw(*samples: int, epoch: int = 0, seed: int = 0) -> Draw:
    """These samples in one epoch."""
    ids = np.array(samples, dtype=np.int64)
    return Draw(ids, np.full_like(ids, epoch), seed)


def make(folder: Path, *, prepare: bool = True, **knobs: Any) -> Images:
    """Image data with its cache in a folder."""
    data = Images(Images.Config(**knobs), cache=folder / "cache")
    if prepare:
        data.prepare()
    return data


def whole(data: Images, split: Split) -> dict[str, Tensor]:
    """All samples of a part in one batch."""
    return data.batch(draw(*range(data.size(split))), split)
