"""nvJPEG on a GPU: the order of streams, memory, errors, and the choice of it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from PIL import Image

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.web import encoders
from splatview_viewer.web.encoders import NvJpegEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl

pytestmark = pytest.mark.cuda


@pytest.fixture
def encoder() -> Iterator[NvJpegEncoder]:
    made = NvJpegEncoder(0)
    yield made
    made.close()


def decoded(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def test_it_is_chosen_where_opengl_and_cuda_share_a_gpu(ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    for named in ("", "nvjpeg"):
        monkeypatch.setenv(encoders.VARIABLE, named)
        chosen = encoders.choose(ctx)
        assert isinstance(chosen, NvJpegEncoder), chosen.reason
        chosen.close()


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
    pixels = np.zeros((20, 30, 4), np.uint8)
    for given, where in ((pixels, "an array"), (torch.from_numpy(pixels), "cpu")):
        with pytest.raises(ValueError, match=f"pixels: {where}; this nvJPEG takes tensors on cuda:0"):
            encoder.encode(given, 80)
    encoder.close()
    with pytest.raises(ViewerError, match="the nvJPEG encoder is closed"):
        encoder.encode(torch.from_numpy(pixels).cuda(), 80)
