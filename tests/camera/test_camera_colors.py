"""Colours and formats: whatever a video is made of, the same picture comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.stream_servers import av

from splatview.camera.sources import CaptureSettings, source_for

if TYPE_CHECKING:
    from pathlib import Path

PATCHES = np.array([[200, 30, 40], [30, 180, 60], [40, 60, 220], [128, 128, 128], [250, 250, 250], [10, 10, 10],
                    [200, 180, 30], [30, 190, 200]], np.uint8)
MATRICES = {"BT.709": (0.2126, 0.0722, 1), "BT.601": (0.299, 0.114, 6)}
"""The shares of red and blue in the brightness, and the number by which files name it."""


def only_picture(path: Path) -> np.ndarray:
    source = source_for(CaptureSettings(source=str(path)))
    source.open()
    try:
        assert source.grab() is not None
        return source.retrieve()
    finally:
        source.close()


def in_planes(image: np.ndarray, red: float, blue: float, full: bool) -> np.ndarray:
    """(H, W, 3) RGB as the planes of yuv420p, one below the other, by the definition."""
    rgb = image / 255
    y = rgb @ [red, 1 - red - blue, blue]
    cb, cr = (rgb[..., 2] - y) / (2 * (1 - blue)), (rgb[..., 0] - y) / (2 * (1 - red))
    planes = ((y * 255, cb * 255 + 128, cr * 255 + 128) if full
              else (y * 219 + 16, cb * 224 + 128, cr * 224 + 128))
    levels = [np.clip(np.rint(p), 0, 255).astype(np.uint8) for p in planes]
    flat = [levels[0].ravel(), levels[1][::2, ::2].ravel(), levels[2][::2, ::2].ravel()]
    return np.concatenate(flat).reshape(image.shape[0] * 3 // 2, image.shape[1])


@pytest.mark.parametrize("full", [False, True], ids=["limited", "full"])
@pytest.mark.parametrize("matrix", MATRICES)
def test_colours_are_what_the_file_says_they_are(tmp_path: Path, matrix: str, full: bool) -> None:
    red, blue, number = MATRICES[matrix]
    image = PATCHES.reshape(2, 4, 3).repeat(32, 0).repeat(32, 1)
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"crf": "1"})
        stream.width, stream.height, stream.pix_fmt = 128, 64, "yuv420p"
        stream.codec_context.colorspace, stream.codec_context.color_range = number, 2 if full else 1
        frame = av.VideoFrame.from_ndarray(in_planes(image, red, blue, full), format="yuv420p")
        frame.colorspace, frame.color_range = number, 2 if full else 1
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert np.abs(only_picture(path)[16::32, 16::32].reshape(-1, 3).astype(int) - PATCHES).max() <= 4
