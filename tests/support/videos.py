"""Test pictures with their number in them, as arrays, JPEG files and videos."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from splatview.camera.pattern import draw

# Tests with videos need the extra `camera`.
av = pytest.importorskip("av")
W = 320
H = 240
RED = 200, 30, 40
_FRAME_COUNT = 12
_FRAME_RATE = 30
_TIME_UNITS = 90_000
"""Units of a second in which times of pictures are given."""


def pattern(index: int, width: int = W, height: int = H) -> NDArray[np.uint8]:
    """Draw the test picture of this number, (height, width, 3) RGB.

    Its right third is red, so that the order of the channels shows.
    """
    image = draw(index, width, height)
    image[height // 8 :, 2 * width // 3 :] = RED
    return image


def jpeg(index: int, width: int = W, height: int = H) -> bytes:
    """Encode the test picture of this number as a JPEG file."""
    file = io.BytesIO()
    Image.fromarray(pattern(index, width, height)).save(file, "JPEG", quality=95)
    return file.getvalue()


def write_video(
    path: Path,
    times: list[float] | None = None,
    *,
    size: tuple[int, int] = (W, H),
    first: int = 0,
    pixel_aspect: Fraction | None = None,
    display_matrix: Sequence[int] | None = None,
) -> Path:
    """Write a video of test pictures in H.264, each of which can be decoded by itself.

    Args:
        path: The file.
        times: Seconds of the pictures; None: twelve pictures, 30 a second.
        size: Width and height.
        first: Number of the first picture.
        pixel_aspect: Width of a pixel divided by its height.
        display_matrix: Nine numbers by which players turn and mirror the pictures.
    """
    container_options = {}
    if path.suffix == ".mp4":
        # So that a server without range requests can serve it: the index comes first.
        container_options["movflags"] = "faststart"
    count = _FRAME_COUNT if times is None else len(times)
    with av.open(str(path), "w", options=container_options) as container:
        encoder_options = {"crf": "8", "preset": "ultrafast", "g": "1"}
        stream = container.add_stream(
            "libx264", rate=_FRAME_RATE, options=encoder_options
        )
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        if pixel_aspect is not None:
            stream.codec_context.sample_aspect_ratio = pixel_aspect
        if display_matrix is not None:
            if not hasattr(stream, "set_display_matrix"):
                pytest.skip("this PyAV writes no display matrix")
            stream.set_display_matrix(display_matrix)
        for i in range(count):
            frame = av.VideoFrame.from_ndarray(pattern(first + i, *size), "rgb24")
            if times is not None:
                frame.pts = round(times[i] * _TIME_UNITS)
                frame.time_base = Fraction(1, _TIME_UNITS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def zero_packets(path: Path, *indices: int) -> Path:
    """Damage a video file: overwrite the packets of these pictures with zeros."""
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]
    data = bytearray(path.read_bytes())
    for index in indices:
        packet = packets[index]
        data[packet.pos : packet.pos + packet.size] = bytes(packet.size)
    path.write_bytes(data)
    return path
