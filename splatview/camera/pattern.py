"""A source that draws its pictures: to try everything where there is no camera."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from splatview.camera.sources import CameraError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from splatview.camera.sources import Buffers, SourceSettings

_BITS = 24
_STEP = 4
"""Pixels by which the square goes on from one picture to the next."""


class PatternSource:
    """A white square that moves over a quiet ground by 4 pixels a picture; each picture bears its number."""

    recorded = False

    def __init__(self, settings: SourceSettings):
        self._width, self._height = settings.width or 1280, settings.height or 720
        self.rate = settings.fps or 30.0
        self.words = f"a test picture, {self._width} x {self._height} at {self.rate:g}/s"
        self._ground: NDArray[np.uint8] | None = None
        self._begun = 0.0
        self._number = -1

    def open(self) -> None:
        self._ground = _ground(self._width, self._height)
        self._begun, self._number = time.monotonic(), -1

    def grab(self) -> float | None:
        if self._ground is None:
            raise CameraError("the test picture is not open")
        # Who comes late misses some, as with a camera; who comes in time waits for the next.
        elapsed = time.monotonic() - self._begun
        self._number = max(self._number + 1, int(elapsed * self.rate))
        due = self._number / self.rate
        if due > elapsed:
            time.sleep(due - elapsed)
        return due

    def retrieve(self, buffers: Buffers) -> NDArray[np.uint8]:
        ground = self._ground
        if ground is None:
            raise CameraError("the test picture is not open")
        image = buffers.take(self._height, self._width)
        image[:] = ground
        x0, y0, x1, y1 = square(self._number, self._width, self._height)
        image[y0:y1, x0:x1] = 255
        cell = _cell(self._width)
        for bit in range(_BITS):
            image[:cell, bit * cell : (bit + 1) * cell] = 235 if self._number >> bit & 1 else 20
        return image

    def close(self) -> None:
        self._ground = None


def square(number: int, width: int, height: int) -> tuple[int, int, int, int]:
    """Where the square is in the picture of this number: x0, y0, x1, y1 in pixels."""
    side = max(2, min(width, height) // 6)
    row = _cell(width)
    x = number * _STEP % max(1, width - side)
    y = row + (height - row - side) // 2
    return x, y, x + side, y + side


def number_of(image: NDArray[np.uint8]) -> int:
    """The number that a test picture (H, W, 3) bears, modulo 2**24."""
    cell = _cell(image.shape[1])
    middle = image[cell // 2, cell // 2 : _BITS * cell : cell]
    return sum(1 << bit for bit in range(_BITS) if middle[bit].mean() > 128)


def _cell(width: int) -> int:
    """Pixels along a side of the cells, one per bit, in which the number stands."""
    return max(1, min(24, width // _BITS))


def _ground(width: int, height: int) -> NDArray[np.uint8]:
    """A quiet gradient with a grid, on which anything that stands still or tears is seen."""
    import numpy as np

    y, x = np.mgrid[0:height, 0:width]
    image = np.empty((height, width, 3), np.uint8)
    image[..., 0] = 30 + 40 * x // width
    image[..., 1] = 45 + 40 * y // height
    image[..., 2] = 80
    image[(x % 80 == 0) | (y % 80 == 0)] += 18
    return image
