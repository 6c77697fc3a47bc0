"""nvJPEG on a GPU: the order of streams, memory, errors, and the choice of it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from PIL import Image

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.web import encoders
from splatview_viewer.web.encoders import NvJpegEncoder, TurboEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cuda


@pytest.fixture
def encoder() -> Iterator[NvJpegEncoder]:
    made = NvJpegEncoder(0)
    yield made
    made.close()


def decoded(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def photo(height: int = 540, width: int = 960) -> np.ndarray:
    y, x = np.mgrid[:height, :width].astype(np.float64)
    chance = np.random.default_rng(0)
    colors = [127 + 100 * np.sin(x / 31 + y / 77 * k) + chance.normal(0, 6, x.shape) for k in (1, 2, 3)]
    return np.clip(np.stack([*colors, x * 0], -1), 0, 255).astype(np.uint8)


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / np.mean((a.astype(float) - b.astype(float)) ** 2)))


def test_it_is_chosen_where_opengl_and_cuda_share_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(encoders.VARIABLE, raising=False)
    screen = OffscreenScreen(64, 64)
    chosen = encoders.choose(screen.ctx)
    print(f"chosen: {chosen.name} {chosen.reason}")
    assert isinstance(chosen, NvJpegEncoder), chosen.reason
    chosen.close()
    monkeypatch.setenv(encoders.VARIABLE, "nvjpeg")
    forced = encoders.choose(screen.ctx)
    assert forced.name == "nvJPEG"
    forced.close()
    screen.close()


@pytest.mark.parametrize("quality", [95, 85, 60, 35])
def test_as_good_as_on_the_cpu(encoder: NvJpegEncoder, quality: int) -> None:
    pixels = photo()
    ours, theirs = encoder.encode(torch.from_numpy(pixels).cuda(), quality), TurboEncoder().encode(pixels, quality)
    expected = pixels[::-1, :, :3]  # the lowest row comes first
    assert psnr(decoded(ours), expected) > psnr(decoded(theirs), expected) - 1
    assert len(ours) < 1.35 * len(theirs)  # its Huffman tables are not made for the picture


def test_it_reads_what_the_stream_wrote_before(encoder: NvJpegEncoder) -> None:
    """On the caller's stream, however late that is done, and it may be written again at once."""
    pixels = torch.zeros((256, 256, 4), dtype=torch.uint8, device="cuda")
    stream = torch.cuda.Stream()
    for shade in (200, 30, 120):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            pixels.fill_(shade)
            data = encoder.encode(pixels, 90)
            pixels.fill_(255)
        assert np.abs(decoded(data).astype(int) - shade).max() <= 2


def test_what_lies_elsewhere_is_refused(encoder: NvJpegEncoder) -> None:
    with pytest.raises(ValueError, match="pixels: an array; this nvJPEG takes tensors on cuda:0"):
        encoder.encode(photo(), 80)
    with pytest.raises(ValueError, match="pixels: cpu; this nvJPEG takes tensors on cuda:0"):
        encoder.encode(torch.from_numpy(photo()), 80)
    encoder.close()
    with pytest.raises(ViewerError, match="the nvJPEG encoder is closed"):
        encoder.encode(torch.from_numpy(photo()).cuda(), 80)
