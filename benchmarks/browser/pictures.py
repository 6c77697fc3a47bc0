"""Make pictures that bear their number, or a mark, and read them again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

BITS = 20
BLOCK = 40
"""Side of a block in pixels of a picture 1920 wide; others in proportion."""
_MARGIN = 16
_MARK = (255, 0, 255)
_MARK_SIDE = 48
_STANDARD_SUM = 3685
"""The sum of the luminance table in annex K of JPEG's standard, which stands for quality 50."""
POOL = 12
"""Different pictures before they come again, with other numbers."""


def moving(base: np.ndarray, size: tuple[int, int], count: int) -> list[np.ndarray]:
    """Return pictures of a window that circles over a larger picture.

    `count` of (height, width, 3) uint8; each differs from the next.
    """
    width, height = size
    room_y = base.shape[0] - height
    room_x = base.shape[1] - width
    pictures = []
    for i in range(count):
        angle = 2 * np.pi * i / count
        y = int(room_y * (0.5 + 0.5 * np.sin(angle)))
        x = int(room_x * (0.5 + 0.5 * np.cos(angle)))
        pictures.append(np.ascontiguousarray(base[y : y + height, x : x + width]))
    return pictures


def write(picture: np.ndarray, index: int) -> None:
    """Draw a number into (H, W, C) uint8: bits in a row, their opposites below."""
    side = max(BLOCK * picture.shape[1] // 1920, 4)
    margin = max(_MARGIN * picture.shape[1] // 1920, 2)
    bits = np.array([index >> k & 1 for k in range(BITS)], np.uint8) * 255
    row = np.repeat(bits, side)[None, :, None]
    picture[margin : margin + side, margin : margin + BITS * side, :3] = row
    picture[margin + side : margin + 2 * side, margin : margin + BITS * side, :3] = (
        255 - row
    )


def read(picture: np.ndarray) -> int:
    """Return the number that a picture shows, of any size.

    Raises ValueError when it shows none.
    """
    scale = picture.shape[1] / 1920
    index = 0
    for k in range(BITS):
        x = round((_MARGIN + (k + 0.5) * BLOCK) * scale)
        upper_level, lower_level = (
            float(picture[round((_MARGIN + (0.5 + row) * BLOCK) * scale), x].mean())
            for row in (0, 1)
        )
        if abs(upper_level - lower_level) < 100:
            raise ValueError(
                f"no number in the picture: block {k} has {upper_level:.0f} and {lower_level:.0f}"
            )
        index |= int(upper_level > lower_level) << k
    return index


def likeness(picture: np.ndarray, expected: np.ndarray) -> float:
    """Return the PSNR in dB of two (H, W, 3) uint8 pictures.

    The expected one is reduced when the other is smaller.
    """
    if picture.shape != expected.shape:
        from PIL import Image

        expected = np.asarray(
            Image.fromarray(expected).resize(picture.shape[1::-1], Image.Resampling.BOX)
        )
    error = float(np.square(picture.astype(np.float32) - expected).mean())
    if error == 0:
        return 99.0
    return 10 * np.log10(255.0**2 / error)


def mark(picture: np.ndarray) -> None:
    """Draw the mark into the middle of (H, W, 3) uint8."""
    y, x = (n // 2 - _MARK_SIDE // 2 for n in picture.shape[:2])
    picture[y : y + _MARK_SIDE, x : x + _MARK_SIDE] = _MARK


def find_mark(picture: np.ndarray, scale: float = 1.0) -> tuple[float, float]:
    """Return x, y of the mark's centre in pixels of a picture.

    Raises ValueError where there is none, or half of one.
    """
    p = picture[..., :3].astype(np.int16)
    ys, xs = np.nonzero((p[..., 0] > 190) & (p[..., 2] > 190) & (p[..., 1] < 90))
    if len(xs) == 0:
        raise ValueError("no mark in the picture")
    x = float(np.median(xs))
    y = float(np.median(ys))
    near = (abs(xs - x) < _MARK_SIDE) & (abs(ys - y) < _MARK_SIDE)
    if near.sum() < (_MARK_SIDE * scale) ** 2 / 6:
        raise ValueError(f"only {near.sum()} pixels of the mark")
    return (xs[near].min() + xs[near].max() + 1) / 2, (
        ys[near].min() + ys[near].max() + 1
    ) / 2


def hand_position(step: int, size: tuple[int, int]) -> tuple[int, int]:
    """Return x, y of the hand at a step, in pixels of a picture of a size.

    It lies elsewhere at every step.
    """
    width, height = size
    x = width // 2 + round(height / 5 * math.sin(step / 12))
    return x, height * 3 // 4 + round(height / 12 * math.sin(step / 7)) + (step % 2)


def decode(data: bytes) -> np.ndarray:
    """Decode JPEG or PNG to (H, W, 3) uint8."""
    if data[:2] == b"\xff\xd8":
        import simplejpeg

        return simplejpeg.decode_jpeg(data)
    import io

    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def describe(data: bytes) -> dict[str, Any]:
    """Return the "quality" and "colour" of a JPEG."""
    if data[:2] != b"\xff\xd8":
        return {"quality": 100, "colour": "all"}
    import simplejpeg

    offset = 2
    while data[offset + 1] != 0xDB:
        offset += 2 + int.from_bytes(data[offset + 2 : offset + 4], "big")
    scale = sum(data[offset + 5 : offset + 69]) * 100 / _STANDARD_SUM
    return {
        "quality": round(5000 / scale) if scale > 100 else round((200 - scale) / 2),
        "colour": ":".join(simplejpeg.decode_jpeg_header(data)[3]),
    }
