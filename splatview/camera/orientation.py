"""From the stored pixels of a video to displayed ones: turned, mirrored, made square."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview.camera.sources import fitted

if TYPE_CHECKING:
    from fractions import Fraction

    from splatview.camera.sources import CaptureSettings

_MATRIX_BYTES = 36
"""A display matrix of FFmpeg: nine 32-bit integers."""
_MAX_SIDE = 16384
"""Pixels along a side beyond which a picture is not made wider."""
_MAX_PIXEL_ASPECT = 8.0
"""Width of a pixel over its height, or the inverse, beyond which a file's figure is an error."""


@dataclass(frozen=True, slots=True)
class Orientation:
    """One of the eight ways to lay a picture: transposed first, then mirrored."""

    transposed: bool = False
    flipped_x: bool = False
    """Left and right change places."""
    flipped_y: bool = False
    """Top and bottom change places."""

    def applied(self, image: np.ndarray) -> np.ndarray:
        """Return a picture (H, W, C) as it is displayed; the same array if nothing changes."""
        if self == UPRIGHT:
            return image
        if self.transposed:
            image = image.swapaxes(0, 1)
        if self.flipped_x:
            image = image[:, ::-1]
        if self.flipped_y:
            image = image[::-1]
        return np.ascontiguousarray(image)


UPRIGHT = Orientation()


def orientation_of(matrix: bytes) -> Orientation:
    """Return the orientation that is nearest to a display matrix, as FFmpeg stores it.

    The matrix maps a stored point (x, y) to the displayed point (a x + c y, b x + d y). One of another
    length, or without a direction, is UPRIGHT.
    """
    if len(matrix) != _MATRIX_BYTES:
        return UPRIGHT
    a, b, _, c, d = np.frombuffer(matrix, "=i4")[:5].tolist()
    if abs(b) + abs(c) > abs(a) + abs(d):
        return Orientation(transposed=True, flipped_x=c < 0, flipped_y=b < 0)
    return Orientation(flipped_x=a < 0, flipped_y=d < 0)


def stored_size(
    width: int,
    height: int,
    pixel_aspect: Fraction | float | None,
    orientation: Orientation,
    settings: CaptureSettings,
) -> tuple[int, int]:
    """Return the size to scale a stored picture to, so that it fits the settings once it is displayed.

    Pixels become square by making the picture wider or narrower, or, where it would be too wide,
    lower; `pixel_aspect`: width of a pixel over
    its height, None or 0 for unknown.
    """
    aspect = float(pixel_aspect or 1)
    if not 1 / _MAX_PIXEL_ASPECT <= aspect <= _MAX_PIXEL_ASPECT:
        aspect = 1.0
    if width * aspect > _MAX_SIDE:
        height = max(1, round(height / aspect))
    else:
        width = max(1, round(width * aspect))
    if orientation.transposed:
        height, width = fitted(height, width, settings)
        return width, height
    return fitted(width, height, settings)
