"""Images as patches and back, the tokens that are made of them, and positions for another size of image."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from timm.layers.pos_embed import resample_abs_pos_embed
from torch import Tensor

from zoo.contracts.data import Description
from zoo.contracts.values.mask import EVERYTHING
from zoo.info.operations import count_products
from zoo.nn.patches import grid_of, normalized, to_images, to_patches
from zoo.nn.resizing import resized_positions
from zoo_builtin.attention.multi_head import MultiHead
from zoo_builtin.embedding.patches import Patches


def embedding(height: int, width: int, *, channels: int = 1, dim: int = 6, **knobs: Any) -> Patches:
    """An embedding with random values."""
    torch.manual_seed(0)
    sizes = Description(image_size=(height, width), channels=channels)
    return Patches(Patches.Config(**knobs), dim=dim, sizes=sizes)


def test_patches_are_in_raster_order_and_their_numbers_channel_by_channel() -> None:
    image = torch.arange(2 * 4 * 6).reshape(1, 2, 4, 6)
    patches = to_patches(image, (2, 3))
    assert patches.shape == (1, 4, 12)
    assert patches[0, 1].tolist() == [3, 4, 5, 9, 10, 11, 27, 28, 29, 33, 34, 35]  # row 0, column 1
    assert patches[0, 2].tolist() == image[0, :, 2:, :3].flatten().tolist()  # row 1, column 0


@given(st.integers(1, 4), st.integers(1, 3), st.tuples(*[st.integers(1, 4)] * 2), st.tuples(*[st.integers(1, 4)] * 2))
def test_images_of_patches_are_the_images(batch: int, channels: int, grid: tuple[int, int], patch: Any) -> None:
    images = torch.arange(batch * channels * grid[0] * patch[0] * grid[1] * patch[1]).float()
    images = images.reshape(batch, channels, grid[0] * patch[0], grid[1] * patch[1])
    patches = to_patches(images, patch)
    assert patches.shape[:2] == (batch, grid[0] * grid[1])
    assert torch.equal(to_images(patches, grid, patch), images)


@pytest.mark.parametrize(("size", "patch"), [((220, 224), (16, 16)), ((32, 48), (16, 32)), ((8, 8), (0, 2))])
def test_patches_that_do_not_fill_an_image_are_refused(size: tuple[int, int], patch: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"patches of {patch[0]} x {patch[1]} don't fill an image of {size[0]} x"):
        grid_of(size, patch)


def test_an_image_of_32_by_48_has_2_by_3_patches_and_a_class_token() -> None:
    made = embedding(32, 48)
    assert (made.grid, made.length, made.extra, made.places) == ((2, 3), 7, 1, 7)
    assert made(torch.zeros(2, 1, 32, 48)).shape == (2, 7, 6)


@pytest.mark.article("patches, section 9")
def test_a_color_image_of_224_is_196_patches_of_768_values() -> None:
    made = embedding(224, 224, channels=3, class_tokens=0)
    image = torch.randn(1, 3, 224, 224)
    assert to_patches(image, (16, 16)).shape == (1, 196, 768)
    assert made.project.in_features == 768
    assert made(image).shape == (1, 196, 6)


@pytest.mark.article("problem 12.7")
def test_patches_of_14_are_256_tokens_and_their_attention_costs_1_71_times_as_much() -> None:
    scores = {}
    for patch in (14, 16):
        with torch.device("meta"):
            tokens = embedding(224, 224, class_tokens=0, patch_size=(patch, patch)).length
            assert tokens is not None
            layer = MultiHead(MultiHead.Config(), dim=64, heads=4)
            x = torch.empty(1, tokens, 64)
        cost = count_products(lambda x=x, layer=layer: layer(x, mask=EVERYTHING.sized(x.shape[1], x.shape[1])))
        scores[tokens] = cost.multiply_adds - 4 * tokens * 64**2  # without the projections
    assert scores[256] / scores[196] == pytest.approx((256 / 196) ** 2)
    assert round(scores[256] / scores[196], 2) == 1.71


def test_a_projected_patch_is_the_convolution_of_the_paper() -> None:
    made = embedding(8, 12, channels=3, patch_size=(4, 6), class_tokens=0)
    image = torch.randn(2, 3, 8, 12)
    kernel = made.project.weight.reshape(6, 3, 4, 6)
    convolved = torch.nn.functional.conv2d(image, kernel, made.project.bias, stride=(4, 6))
    torch.testing.assert_close(made(image), convolved.flatten(2).mT)


def test_class_tokens_come_first_then_registers_and_only_class_tokens_may_have_places() -> None:
    image = torch.zeros(1, 1, 32, 32)
    made = embedding(32, 32, class_tokens=2, registers=3)
    x = made(image)[0]
    assert torch.equal(x[1], made.class_tokens[1].weight[0])
    assert torch.equal(x[2:5], made.registers.weight)  # type: ignore[union-attr]
    assert made.positions(image, 1)[0, :, 0].tolist() == [0, 1, -1, -1, -1, 2, 3, 4, 5]
    assert made.places == 6
    made = embedding(32, 32, class_tokens=2, registers=3, class_position=False)
    assert made.positions(image, 1)[0, :, 0].tolist() == [-1, -1, -1, -1, -1, 0, 1, 2, 3]
    assert made.places == 4


def test_places_on_a_grid_are_row_and_column_of_images_of_any_size() -> None:
    made = embedding(32, 48)
    image = torch.zeros(1, 1, 48, 32)
    assert made.positions(image, 2)[0].tolist() == [[-1, -1], [0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    with pytest.raises(ValueError, match="one axis or two, a position scheme asks for 3"):
        made.positions(image, 3)


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ((1, 3, 32, 48), "must be (B, 1, height, width), got (1, 3, 32, 48)"),
        ((1, 1, 40, 48), "don't fill an image of 40 x"),
    ],
)
def test_other_images_are_refused(shape: tuple[int, ...], told: str) -> None:
    with pytest.raises(ValueError) as caught:
        embedding(32, 48)(torch.zeros(shape))
    assert told in str(caught.value)


def test_signals_are_images_of_height_1() -> None:
    made = embedding(1, 40, patch_size=(1, 4))
    assert made.grid == (1, 10)
    assert made(torch.zeros(2, 1, 1, 40)).shape == (2, 11, 6)


def test_normalized_patches_have_mean_0_and_the_unbiased_variance_1() -> None:
    patches = normalized(3 + 2 * torch.randn(2, 5, 12, dtype=torch.float64))
    torch.testing.assert_close(patches.mean(-1), torch.zeros(2, 5, dtype=torch.float64))
    torch.testing.assert_close(patches.var(-1), torch.ones(2, 5, dtype=torch.float64), rtol=1e-4, atol=0)
    assert torch.equal(normalized(torch.ones(1, 1, 4)), torch.zeros(1, 1, 4))


def table(rows: int, columns: int, extra: int, dim: int = 3) -> Tensor:
    return torch.randn(extra + rows * columns, dim, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("old", [(14, 14), (3, 5), (1, 10)])
@pytest.mark.parametrize("new", [(24, 24), (7, 9), (5, 3)])
@pytest.mark.parametrize("extra", [0, 1, 2])
def test_resized_positions_are_those_of_timm(old: tuple[int, int], new: tuple[int, int], extra: int) -> None:
    ours = resized_positions(table(*old, extra), old, new, extra)
    theirs = resample_abs_pos_embed(table(*old, extra)[None], list(new), list(old), num_prefix_tokens=extra)[0]
    assert torch.equal(ours, theirs)
    assert torch.equal(ours[:extra], table(*old, extra)[:extra])


@pytest.mark.parametrize("old", [14, 37])
def test_every_size_of_grid_is_met_exactly(old: int) -> None:
    """Given a factor in place of a size, 61, 115 and 122 rows out of 14 come out one too few."""
    for new in range(4, 131):
        assert len(resized_positions(table(old, old, 1, 1), (old, old), (new, new), 1)) == 1 + new * new


def test_the_same_grid_is_the_same_table_bit_for_bit() -> None:
    given_table = table(3, 5, 1)
    assert torch.equal(resized_positions(given_table, (3, 5), (3, 5), 1), given_table)


def test_bfloat16_is_resized_in_float32() -> None:
    rounded = table(4, 4, 1).bfloat16()
    resized = resized_positions(rounded, (4, 4), (6, 5), 1)
    assert resized.dtype == torch.bfloat16
    assert torch.equal(resized, resized_positions(rounded.float(), (4, 4), (6, 5), 1).bfloat16())


def test_a_table_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="a table of 17 positions isn't that of 0 tokens and 4 x 4 patches"):
        resized_positions(table(4, 4, 1), (4, 4), (6, 6), 0)
