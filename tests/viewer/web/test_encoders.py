"""One conformance suite over all encoders: what `splatview_viewer.web.encoders.Encoder`
promises, each keeps.
"""

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
    made = request.param()
    yield made
    made.close()


def photo(width: int = W, height: int = H) -> np.ndarray:
    """(H, W, 4) uint8, top row first: smooth colours, alpha of all sorts."""
    y, x = np.mgrid[:height, :width].astype(np.float64)
    colors = [127 + 120 * np.sin(x / 31 + y / 77 * k) for k in (1, 2, 3)]
    return np.stack([*colors, (x + y) % 256], -1).astype(np.uint8)


def given(encoder: Encoder, pixels: np.ndarray) -> Any:
    """The pixels where the encoder takes them."""
    if encoder.device is None:
        return np.ascontiguousarray(pixels)
    import torch

    return torch.from_numpy(
        pixels.copy()
    ).cuda()  # of one row as well, which is flipped and contiguous


def decoded(data: bytes, kind: str = "JPEG") -> np.ndarray:
    image = Image.open(io.BytesIO(data))
    assert image.format == kind
    return np.asarray(image.convert("RGB"))


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
    encoder: Encoder, width: int, height: int, size: tuple[int, int] | None
) -> None:
    pixels = photo(width, height)
    data = encoder.encode(given(encoder, pixels[::-1]), 95, size=size)
    whole = Image.fromarray(pixels[..., :3])
    expected = np.asarray(
        whole if size is None else whole.resize(size, Image.Resampling.BOX)
    ).astype(float)
    got = decoded(data)
    assert got.shape == expected.shape
    assert np.sqrt(np.mean((got - expected) ** 2)) < 6
    assert all(
        taken == (size or (width, height)) and ms > 0 for taken, ms in encoder.durations
    )
    np.testing.assert_array_equal(
        decoded(encode_lossless(pixels[::-1]), "WEBP"), pixels[..., :3]
    )


def test_threads_do_not_mix_pictures(encoder: Encoder) -> None:
    shades = [10, 80, 150, 220] * 16

    def work(shade: int) -> int:
        got = decoded(
            encoder.encode(given(encoder, np.full((120, 160, 4), shade, np.uint8)), 90)
        )
        return int(np.abs(got.astype(int) - shade).max())

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(work, shades)) <= 2
