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
    """A recording without an end, of `draw`'s pictures."""

    recorded = True

    def __init__(self, settings: CaptureSettings):
        self._size = settings.width or 1280, settings.height or 720
        self.rate = settings.fps or 30.0
        self.words = (
            f"a test picture, {self._size[0]} x {self._size[1]} at {self.rate:g}/s"
        )
        self._number = -1

    def open(self) -> None:
        self._number = -1

    def grab(self) -> float | None:
        self._number += 1
        return self._number / self.rate

    def retrieve(self) -> np.ndarray:
        return draw(self._number, *self._size)

    def close(self) -> None:
        pass


def draw(number: int, width: int, height: int) -> np.ndarray:
    """Return the test picture of this number, (height, width, 3) RGB: a white square that moves over a quiet ground,
    and the number, modulo 2**24, as a row of cells.
    """
    image = _ground(width, height).copy()
    x0, y0, x1, y1 = square(number, width, height)
    image[y0:y1, x0:x1] = 255
    cell = _cell(width)
    for bit in range(_BITS):
        image[:cell, bit * cell : (bit + 1) * cell] = 235 if number >> bit & 1 else 20
    return image


def square(number: int, width: int, height: int) -> tuple[int, int, int, int]:
    """Return the position of the square in the picture of this number: x0, y0, x1, y1 in pixels."""
    side = max(2, min(width, height) // 6)
    row = _cell(width)
    x = number * _STEP % max(1, width - side)
    y = row + (height - row - side) // 2
    return x, y, x + side, y + side


def number_of(image: np.ndarray) -> int:
    """Return the number in a test picture (H, W, 3), modulo 2**24."""
    cell = _cell(image.shape[1])
    middle = image[cell // 2, cell // 2 : _BITS * cell : cell]
    return sum(1 << bit for bit in range(_BITS) if middle[bit].mean() > 128)


def _cell(width: int) -> int:
    """Return the side of the number's cells, one per bit, in pixels."""
    return max(1, min(24, width // _BITS))


@lru_cache(1)
def _ground(width: int, height: int) -> np.ndarray:
    """Return a quiet gradient with a grid, on which standstill and tearing are visible."""
    y, x = np.mgrid[0:height, 0:width]
    image = np.empty((height, width, 3), np.uint8)
    image[..., 0] = 30 + 40 * x // width
    image[..., 1] = 45 + 40 * y // height
    image[..., 2] = 80
    image[(x % 80 == 0) | (y % 80 == 0)] += 18
    return image
