"""Pictures of all forms open as pixels."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import open_file
from splatview_viewer.render.cameras.photos import read_photo

SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    "jpg": {"quality": 100},
    "webp": {"lossless": True, "exact": True},
}


def test_pictures_of_all_forms_and_modes_open_as_pixels(tmp_path: Path) -> None:
    smooth = np.add.outer(
        np.add.outer(np.linspace(0, 190, 30), np.linspace(0, 50, 20)), [0, 3, 5, 9]
    ).astype(np.uint8)
    for form, mode, channels in (
        ("png", "RGB", 3),
        ("png", "RGBA", 4),
        ("png", "L", 1),
        ("png", "LA", 2),
        ("png", "P", 3),
        ("png", "1", 1),
        ("jpg", "L", 1),
        ("jpg", "CMYK", 3),
        ("webp", "RGBA", 4),
        ("bmp", "RGB", 3),
        ("bmp", "L", 1),
        ("bmp", "P", 3),
        ("bmp", "1", 1),
        ("ppm", "RGB", 3),
        ("pgm", "L", 1),
        ("tiff", "RGB", 3),
        ("tiff", "RGBA", 4),
        ("tif", "LA", 2),
        ("tif", "CMYK", 3),
    ):
        pixels = smooth[..., :3] if mode == "P" else smooth
        image = Image.fromarray(pixels).convert(mode)
        image.save(tmp_path / f"a.{form}", **SAVE_OPTIONS.get(form, {}))
        got = open_file(tmp_path / f"a.{form}")
        stored_mode = ["L", "LA", "RGB", "RGBA"][channels - 1]
        expected = np.asarray(image.convert(stored_mode)).reshape(30, 20, channels)
        assert got.shape == expected.shape
        assert got.dtype == np.uint8
        largest_error = np.abs(got.astype(int) - expected).max()
        tolerance = 6 if form == "jpg" else 0
        assert largest_error <= tolerance, (form, mode)
    sixteen = np.arange(600, dtype=np.uint16).reshape(30, 20) * 100
    for form in ("png", "tif"):
        Image.fromarray(sixteen).save(tmp_path / f"a.{form}")
        got = open_file(tmp_path / f"a.{form}")
        np.testing.assert_array_equal(got, sixteen[..., None])
    Image.fromarray(sixteen / np.float32(6e4)).save(tmp_path / "b.tif")
    got = open_file(tmp_path / "b.tif")
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, sixteen[..., None] / np.float32(6e4))


def test_messages_about_unreadable_pictures_hold_no_addresses(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.tif"
    # One pixel of three times 64 bits of floating point.
    tags = ((256, 1), (257, 1), (258, 64), (259, 1), (262, 2), (277, 3), (339, 3))
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    directory = struct.pack("<H", len(tags)) + entries + bytes(4)
    path.write_bytes(b"II*\0" + struct.pack("<I", 8) + directory + bytes(64))
    with pytest.raises(FileError, match=r"floating point .* or as \.npy$"):
        open_file(path)
    path.write_bytes(b"\xff\xd8\xff nothing")
    with pytest.raises(FileError, match=r"the picture is damaged") as caught:
        open_file(path)
    assert "_io." not in str(caught.value)


@pytest.mark.parametrize("form", ["bmp", "tif", "ppm"])
def test_pictures_open_as_photographs_of_cameras(form: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / f"a.{form}")
    np.testing.assert_array_equal(read_photo(tmp_path / f"a.{form}", (9, 6)), pixels)


@pytest.mark.parametrize(
    ("shape", "dtype", "out"),
    [
        ((5, 7), "f8", (5, 7, 1)),
        ((5, 7, 3), "u1", (5, 7, 3)),
        ((3, 5, 7), ">f4", (5, 7, 3)),
        ((5, 7, 4), "f2", (5, 7, 4)),
        ((5, 7, 1), ">u2", (5, 7, 1)),
    ],
)
def test_npy_pictures_keep_their_values(shape, dtype, out, tmp_path):
    a = (np.arange(np.prod(shape)).reshape(shape) / 200).astype(dtype)
    np.save(tmp_path / "a.npy", a)
    got = open_file(tmp_path / "a.npy")
    assert isinstance(got, np.ndarray)
    assert got.shape == out
    if a.dtype.kind == "f":
        assert got.dtype == np.float32
    else:
        assert got.dtype == a.dtype.newbyteorder("=")
    has_planes = shape == (3, 5, 7)
    expected = np.moveaxis(a, 0, -1) if has_planes else a.reshape(out)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
