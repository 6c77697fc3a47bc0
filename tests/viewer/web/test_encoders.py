"""Conformance of each encoder with `splatview_viewer.web.encoders.Encoder`."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from splatview_viewer.web.encoders import (
    Encoder,
    NvJpegEncoder,
    TurboEncoder,
    encode_lossless,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


W = 320
H = 200


def nvjpeg() -> Encoder:
    return NvJpegEncoder(0)


@pytest.fixture(
    params=[TurboEncoder, pytest.param(nvjpeg, marks=pytest.mark.cuda)],
    ids=["turbo", "nvjpeg"],
)
def encoder(request: pytest.FixtureRequest) -> Iterator[Encoder]:
    new_encoder = request.param()
    yield new_encoder
    new_encoder.close()


def photo(width: int = W, height: int = H) -> np.ndarray:
    """Return smooth colours with varied alpha, (H, W, 4) uint8, top row first."""
    y, x = np.mgrid[:height, :width].astype(np.float64)
    colors = [127 + 120 * np.sin(x / 31 + y / 77 * k) for k in (1, 2, 3)]
    return np.stack([*colors, (x + y) % 256], -1).astype(np.uint8)


def input_of(encoder: Encoder, pixels: np.ndarray) -> Any:
    """Return the pixels on the device that the encoder takes them from."""
    if encoder.device is None:
        return np.ascontiguousarray(pixels)
    import torch

    # A picture of one row is contiguous although it is flipped: it is copied as well.
    return torch.from_numpy(pixels.copy()).cuda()


def decoded(data: bytes, kind: str = "JPEG") -> np.ndarray:
    image = Image.open(io.BytesIO(data))
    assert image.format == kind
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("is_top_first", [False, True])
@pytest.mark.parametrize(
    ("width", "height", "size"),
    [
        (W, H, None),
        (1, 1, None),
        (17, 31, None),
        (8192, 16, None),
        (W, H, (160, 100)),
        (W, H, (107, 67)),
    ],
)
def test_decoded_pixels_are_those_encoded_or_scaled_ones(
    encoder: Encoder,
    width: int,
    height: int,
    size: tuple[int, int] | None,
    is_top_first: bool,
) -> None:
    """As OpenGL has them, and as CUDA draws them."""
    pixels = photo(width, height)
    drawn = pixels[..., :3] if is_top_first else pixels[::-1]
    data = encoder.encode(
        input_of(encoder, drawn), 95, size=size, is_top_first=is_top_first
    )
    photograph = Image.fromarray(pixels[..., :3])
    if size is not None:
        photograph = photograph.resize(size, Image.Resampling.BOX)
    expected = np.asarray(photograph).astype(float)
    got = decoded(data)
    assert got.shape == expected.shape
    assert np.sqrt(np.mean((got - expected) ** 2)) < 6
    for taken_size, ms in encoder.durations:
        assert taken_size == (size or (width, height))
        assert ms > 0
    exact = decoded(encode_lossless(drawn, is_top_first=is_top_first), "WEBP")
    np.testing.assert_array_equal(exact, pixels[..., :3])


def test_threads_do_not_mix_pictures(encoder: Encoder) -> None:
    shades = [10, 80, 150, 220] * 16

    def largest_error(shade: int) -> int:
        pixels = np.full((120, 160, 4), shade, np.uint8)
        got = decoded(encoder.encode(input_of(encoder, pixels), 90))
        return int(np.abs(got.astype(int) - shade).max())

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(largest_error, shades)) <= 2
