"""Images as rows of patches, and back.

Dimension legend: B batch, C channels, H height, W width, T patches in raster order, P numbers in a patch.
"""

from __future__ import annotations

from torch import Tensor


def grid_of(image_size: tuple[int, int], patch_size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of patches.

    Raises:
        ValueError: patches that don't fill the image exactly.
    """
    if min(patch_size) < 1 or any(side % patch for side, patch in zip(image_size, patch_size, strict=True)):
        image, patch = (" x ".join(map(str, size)) for size in (image_size, patch_size))
        raise ValueError(f"patches of {patch} don't fill an image of {image}; each side must be a multiple")
    return image_size[0] // patch_size[0], image_size[1] // patch_size[1]


def to_patches(images_BCHW: Tensor, patch_size: tuple[int, int]) -> Tensor:
    """(B, T, P) patches in raster order, P = C * height * width of a patch, in this order."""
    height, width = patch_size
    split = images_BCHW.unflatten(3, (-1, width)).unflatten(2, (-1, height))  # B C rows height columns width
    return split.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def to_images(patches_BTP: Tensor, grid: tuple[int, int], patch_size: tuple[int, int]) -> Tensor:
    """(B, C, H, W) images of (B, T, P) patches, the inverse of ``to_patches``."""
    split = patches_BTP.unflatten(2, (-1, *patch_size)).unflatten(1, grid)  # B rows columns C height width
    return split.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


def normalized(patches_BTP: Tensor) -> Tensor:
    """(B, T, P) each patch with mean 0 and variance 1 over its numbers, as MAE predicts them."""
    centred_BTP = patches_BTP - patches_BTP.mean(-1, keepdim=True)
    return centred_BTP / (patches_BTP.var(-1, keepdim=True) + 1e-6).sqrt()
