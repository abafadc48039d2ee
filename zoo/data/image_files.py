"""Image files: whatever Pillow reads becomes bytes of one shape, upright and opaque.

    file -> turned as EXIF says -> 8 bits a channel -> laid over the background -> grey or RGB -> fitted

16-bit grey is scaled, not cut off: 40,000 of 65,535 becomes 156 of 255. Of several frames the first one counts.
Colour profiles are not applied. Resizing is bicubic, with a filter that widens as an image shrinks.
Axes: C channels, H height, W width.
"""

from __future__ import annotations

import dataclasses
import io
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

Fit = Literal["crop", "stretch", "pad"]

VERSION = Image.__version__
"""Pillow's version: another one may decode or resize a file to other pixels."""

_BICUBIC = Image.Resampling.BICUBIC
_SIXTEEN_BITS = 65_535


class DamagedImageError(Exception):
    """A file that can't be decoded; the text says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """What every image of a set is made to be."""

    size: tuple[int, int]
    """Height and width, in pixels."""
    channels: int
    """1 for grey, 3 for RGB."""
    fit: Fit = "crop"
    """Whether another shape is cropped in the middle, stretched, or padded with the background."""
    background: int = 255
    """Grey level, 0 to 255, behind transparent pixels and around padded images."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """C, H, W."""
        return (self.channels, *self.size)


def decode(data: bytes, form: Form) -> np.ndarray:
    """The image of a file.

    Args:
        data: the whole file.
        form: size and channels that are wanted.

    Returns:
        (C, H, W) uint8.

    Raises:
        DamagedImageError: no image, a truncated one, or one without an agreed white.
    """
    try:
        with Image.open(io.BytesIO(data)) as image:
            upright = ImageOps.exif_transpose(image)
            opaque = _flatten(_to_eight_bits(upright, image.format), form.background)
            fitted = fit_image(opaque.convert("L" if form.channels == 1 else "RGB"), form)
    except Exception as error:  # a damaged file leads Pillow's decoders into exceptions of every kind
        raise DamagedImageError(_reason(data, error)) from error
    return to_array(fitted)


def check_header(data: bytes) -> None:
    """See that a file begins like an image, without decoding it.

    Raises:
        DamagedImageError: it doesn't.
    """
    try:
        Image.open(io.BytesIO(data)).close()
    except Exception as error:
        raise DamagedImageError(_reason(data, error)) from error


def fit_image(image: Image.Image, form: Form) -> Image.Image:
    """An image of mode L, RGB or F in the size of a form."""
    height, width = form.size
    if form.fit == "crop":
        return ImageOps.fit(image, (width, height), _BICUBIC)
    if form.fit == "stretch":
        return image.resize((width, height), _BICUBIC)
    scale = min(width / image.width, height / image.height)
    inner = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    level: Any = form.background / 255 if image.mode == "F" else form.background
    canvas = Image.new(image.mode, (width, height), (level,) * 3 if image.mode == "RGB" else level)
    canvas.paste(image.resize(inner, _BICUBIC), ((width - inner[0]) // 2, (height - inner[1]) // 2))
    return canvas


def to_array(image: Image.Image) -> np.ndarray:
    """An image of mode L, RGB or F as (C, H, W) uint8 or float32."""
    return np.ascontiguousarray(np.moveaxis(np.atleast_3d(np.asarray(image)), 2, 0))


def to_image(pixels_CHW: np.ndarray) -> Image.Image:
    """The image of mode L, RGB or F of an array (C, H, W), which is uint8, or float32 with one channel."""
    return Image.fromarray(pixels_CHW[0] if len(pixels_CHW) == 1 else np.moveaxis(pixels_CHW, 0, 2))


def _to_eight_bits(image: Image.Image, file_format: str | None) -> Image.Image:
    """Scale 16-bit grey, which Pillow's own conversion cuts off at 255."""
    sixteen = image.mode.startswith("I;16") or (image.mode == "I" and file_format in ("PNG", "PPM"))
    if sixteen:
        wide = np.asarray(image).astype(np.int64)
        return Image.fromarray(((wide * 255 + _SIXTEEN_BITS // 2) // _SIXTEEN_BITS).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise DamagedImageError("pixels of 32 bits, for which no value is agreed to be white")
    return image


def _flatten(image: Image.Image, background: int) -> Image.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    canvas = Image.new("RGBA", image.size, (background, background, background, 255))
    return Image.alpha_composite(canvas, image.convert("RGBA")).convert("RGB")


def _reason(data: bytes, error: Exception) -> str:
    if not data:
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):
        return "no image that Pillow knows"
    return str(error) or type(error).__name__
