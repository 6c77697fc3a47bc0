"""A source that draws its pictures: to try everything without a camera."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from splatview.camera.sources import CaptureSettings

_BITS = 24
_STEP = 4
"""Movement of the square from one picture to the next, pixels."""


class PatternSource:
    """A recording without an end, of the pictures that `draw` returns."""

    recorded = True

    def __init__(self, settings: CaptureSettings):
        self._width = settings.width or 1280
        self._height = settings.height or 720
        self.rate = settings.fps or 30.0
        self.description = (
            f"a test picture, {self._width} x {self._height} at {self.rate:g}/s"
        )
        self._index = -1

    def open(self) -> None:
        self._index = -1

    def grab(self) -> float | None:
        self._index += 1
        return self._index / self.rate

    def retrieve(self) -> np.ndarray:
        return draw(self._index, self._width, self._height)

    def close(self) -> None:
        pass


def draw(index: int, width: int, height: int) -> np.ndarray:
    """Return the test picture of an index, (height, width, 3) RGB.

    It shows a white square that moves over a quiet ground, and the index, modulo 2**24,
    as a row of cells.
    """
    image = _ground(width, height).copy()
    x0, y0, x1, y1 = square(index, width, height)
    image[y0:y1, x0:x1] = 255
    cell = _cell_side(width)
    for bit in range(_BITS):
        is_set = index >> bit & 1
        image[:cell, bit * cell : (bit + 1) * cell] = 235 if is_set else 20
    return image


def square(index: int, width: int, height: int) -> tuple[int, int, int, int]:
    """Return the position of the square in a picture: x0, y0, x1, y1 in pixels."""
    side = max(2, min(width, height) // 6)
    row = _cell_side(width)
    x = index * _STEP % max(1, width - side)
    y = row + (height - row - side) // 2
    return x, y, x + side, y + side


def read_index(image: np.ndarray) -> int:
    """Return the index that is drawn in a test picture (H, W, 3), modulo 2**24."""
    cell = _cell_side(image.shape[1])
    centres = image[cell // 2, cell // 2 : _BITS * cell : cell]
    return sum(1 << bit for bit in range(_BITS) if centres[bit].mean() > 128)


def _cell_side(width: int) -> int:
    """Return the side of the index's cells, one per bit, in pixels."""
    return max(1, min(24, width // _BITS))


@lru_cache(1)
def _ground(width: int, height: int) -> np.ndarray:
    """Return a quiet gradient with a grid, on which standstill and tearing show."""
    y, x = np.mgrid[0:height, 0:width]
    image = np.empty((height, width, 3), np.uint8)
    image[..., 0] = 30 + 40 * x // width
    image[..., 1] = 45 + 40 * y // height
    image[..., 2] = 80
    image[(x % 80 == 0) | (y % 80 == 0)] += 18
    return image
