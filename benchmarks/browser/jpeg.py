"""What a JPEG says of itself."""

from __future__ import annotations

from typing import Any

import numpy as np

_STANDARD_SUM = 3685
"""Of the luminance table in the standard's annex K, which stands for quality 50."""


def decode(data: bytes) -> np.ndarray:
    """(H, W, 3) uint8 from JPEG or PNG."""
    if data[:2] == b"\xff\xd8":
        import simplejpeg

        return simplejpeg.decode_jpeg(data)
    import io

    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def describe(data: bytes) -> dict[str, Any]:
    """{"format", "quality", "colour"}: the quality as libjpeg counts it, read off the tables, and how colour is kept
    ("4:2:0"), which matters as much."""
    if data[:2] != b"\xff\xd8":
        return {"format": "png", "quality": 100, "colour": "all"}
    import simplejpeg

    subsampling = simplejpeg.decode_jpeg_header(data)[3]
    return {"format": "jpeg", "quality": _quality(data), "colour": ":".join(subsampling)}


def _quality(data: bytes) -> int:
    at = 2
    while data[at + 1] != 0xDB:
        at += 2 + int.from_bytes(data[at + 2:at + 4], "big")
    scale = sum(data[at + 5:at + 69]) * 100 / _STANDARD_SUM
    return round(5000 / scale) if scale > 100 else round((200 - scale) / 2)
