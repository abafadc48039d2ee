"""Decoding: every kind of image file becomes upright, opaque bytes of one shape, or a word about what is wrong."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from image_samples import encode, form, noise, pixels
from zoo.data.image_files import DamagedImageError, check_header, decode

RED, WHITE, BLACK = [255, 0, 0], [255, 255, 255], [0, 0, 0]


def plain(mode: str, color: object) -> Image.Image:
    return Image.new(mode, (1, 1), color)  # type: ignore[arg-type]


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3]), st.integers(0, 99))
@settings(max_examples=30)
def test_lossless_files_of_the_right_size_come_back_bit_for_bit(height, width, channels, seed):
    image = noise(height, width, seed, channels)
    want = np.atleast_3d(np.asarray(image)).transpose(2, 0, 1)
    for file_format in ("PNG", "BMP", "TIFF", "WEBP"):
        options = {"lossless": True} if file_format == "WEBP" else {}
        if file_format == "WEBP" and channels == 1:
            continue  # WebP has no grey
        got = decode(encode(image, file_format, **options), form(height, width, channels))
        assert got.dtype == np.uint8
        assert got.flags.c_contiguous
        assert np.array_equal(got, want), file_format


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (encode(plain("L", 7)), [7, 7, 7]),
        (encode(plain("1", 1)), WHITE),
        (encode(plain("LA", (7, 255))), [7, 7, 7]),
        (encode(plain("LA", (7, 0))), WHITE),
        (encode(plain("RGBA", (255, 0, 0, 0))), WHITE),
        (encode(plain("RGBA", (255, 0, 0, 255))), RED),
        (encode(plain("RGBA", (255, 0, 0, 128))), [255, 127, 127]),
        (encode(plain("RGB", (255, 0, 0)), transparency=(255, 0, 0)), WHITE),
        (encode(plain("RGB", (255, 0, 1)), transparency=(255, 0, 0)), [255, 0, 1]),
        (encode(plain("CMYK", (0, 255, 255, 0)), "TIFF"), RED),
        (encode(plain("CMYK", (0, 0, 0, 255)), "JPEG", quality=100), BLACK),
        (encode(plain("YCbCr", (76, 85, 255)), "JPEG", quality=100), [254, 0, 0]),
    ],
    ids=[
        "L",
        "1",
        "LA",
        "LA-clear",
        "RGBA-clear",
        "RGBA",
        "RGBA-half",
        "RGB-key",
        "RGB-other",
        "CMYK",
        "CMYK-JPEG",
        "YCbCr",
    ],
)
def test_modes_become_rgb_over_white(data, want):
    assert pixels(data, 1, 1) == [[want]]


def test_the_background_is_told():
    clear = encode(plain("RGBA", (255, 0, 0, 0)))
    assert pixels(clear, 1, 1, background=0) == [[BLACK]]
    assert pixels(clear, 1, 1, background=128) == [[[128, 128, 128]]]
    assert pixels(clear, 1, 1, channels=1, background=40) == [[[40]]]


def test_transparent_palette_entries_are_transparent():
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    assert pixels(encode(image), 1, 2) == [[RED, [0, 0, 255]]]
    assert pixels(encode(image, transparency=0), 1, 2) == [[WHITE, [0, 0, 255]]]
    assert pixels(encode(image, "GIF", transparency=0), 1, 2) == [[WHITE, [0, 0, 255]]]


@pytest.mark.parametrize("file_format", ["PNG", "TIFF", "PPM"])
def test_sixteen_bits_are_scaled_and_not_cut_off(file_format):
    wide = Image.fromarray(np.array([[0, 128, 129, 257, 40_000, 65_535]], dtype=np.uint16))
    if file_format == "PPM":
        data = b"P5 6 1 65535\n" + np.asarray(wide).astype(">u2").tobytes()
    else:
        data = encode(wide, file_format)
    assert pixels(data, 1, 6, channels=1) == [[[0], [0], [1], [1], [156], [255]]]


def test_pixels_without_an_agreed_white_are_refused():
    for values in (np.ones((2, 2), np.float32), np.ones((2, 2), np.int32)):
        with pytest.raises(DamagedImageError, match="no value is agreed to be white"):
            decode(encode(Image.fromarray(values), "TIFF"), form(2, 2))


@pytest.mark.parametrize(
    ("orientation", "corner"),
    [(1, (0, 0)), (2, (0, 7)), (3, (3, 7)), (4, (3, 0)), (5, (0, 0)), (6, (0, 3)), (7, (7, 3)), (8, (7, 0))],
)
def test_photos_are_turned_as_exif_says(orientation, corner):
    """A file of 8 x 4 pixels (width, height) whose first pixel is red."""
    image = Image.new("RGB", (8, 4))
    image.putpixel((0, 0), (255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = orientation
    height, width = (8, 4) if orientation > 4 else (4, 8)
    got = np.array(pixels(encode(image, exif=exif), height, width))
    assert np.argwhere(got[:, :, 0] == 255).tolist() == [list(corner)]


def test_a_turned_jpeg_is_4_wide_and_8_high():
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.fromarray(np.repeat(np.array([[0, 255]], np.uint8), 4, axis=1).repeat(4, axis=0))
    got = decode(encode(image, "JPEG", quality=100, exif=exif), form(8, 4, 1))[0]
    assert got.shape == (8, 4)
    assert got[:4].max() < 40
    assert got[4:].min() > 215


def test_grey_is_luma():
    assert pixels(encode(plain("RGB", (255, 0, 0))), 1, 1, channels=1) == [[[76]]]
    assert pixels(encode(plain("RGB", (90, 90, 90))), 1, 1, channels=1) == [[[90]]]


def test_the_first_frame_counts():
    frames = [plain("L", 10), plain("L", 200)]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert pixels(data, 1, 1, channels=1) == [[[10]]]


# Shapes


def stripes() -> bytes:
    """2 rows of 6 columns: two black, two grey, two white."""
    return encode(Image.fromarray(np.array([[0, 0, 128, 128, 255, 255]] * 2, np.uint8)))


def test_crop_keeps_the_middle_of_another_shape():
    assert pixels(stripes(), 2, 2, channels=1) == [[[128], [128]]] * 2
    tall = encode(Image.fromarray(np.array([[0], [9], [255]], np.uint8)))
    assert pixels(tall, 1, 1, channels=1) == [[[9]]]


def test_pad_puts_background_around_the_whole_image():
    got = pixels(stripes(), 6, 6, channels=1, fit="pad", background=7)
    assert got[0] == got[1] == got[4] == got[5] == [[7]] * 6
    assert got[2] == got[3] == [[0], [0], [128], [128], [255], [255]]
    assert pixels(encode(plain("RGB", (255, 0, 0))), 1, 3, fit="pad") == [[WHITE, RED, WHITE]]


def test_stretch_keeps_everything_in_another_shape():
    wide = np.array(pixels(stripes(), 2, 12, channels=1, fit="stretch"))[0, :, 0]
    assert (wide[0], wide[-1]) == (0, 255)
    assert (np.diff(wide.astype(int)) >= -16).all()  # bicubic overshoots a little before an edge


@pytest.mark.parametrize("fit", ["crop", "stretch", "pad"])
@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (3, 2)])
def test_every_shape_fits(fit, size):
    data = encode(Image.new("RGB", size, (9, 8, 7)))
    assert decode(data, form(16, 24, fit=fit, background=3)).shape == (3, 16, 24)


def test_one_pixel_fills_an_image():
    assert np.unique(decode(encode(plain("L", 77)), form(4, 6, 1))).tolist() == [77]


# Damage


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"This is a text.", "no image that Pillow knows"),
        (encode(noise(64, 64), "JPEG")[:-800], "truncated"),
        (encode(noise(64, 64))[:-800], "truncated"),
        (encode(noise(8, 8))[:60], r"\w"),
    ],
    ids=["empty", "text", "JPEG", "PNG", "header"],
)
def test_damaged_files_say_what_is_wrong(data, reason):
    with pytest.raises(DamagedImageError, match=reason):
        decode(data, form(8, 8))


def test_flipped_bytes_never_raise_anything_else():
    whole = encode(noise(16, 16))
    generator = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(200):
            data = bytearray(whole)
            data[generator.integers(len(data))] ^= 1 << generator.integers(8)
            try:
                assert decode(bytes(data), form(8, 8)).shape == (3, 8, 8)
            except DamagedImageError as error:
                assert str(error)


def test_the_header_alone_tells_text_from_an_image():
    check_header(encode(noise(64, 64), "JPEG")[:-800])
    with pytest.raises(DamagedImageError, match="no image that Pillow knows"):
        check_header(b"This is a text.")
