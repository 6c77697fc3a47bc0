"""Turn, mirror and scale the stored pixels of a video to displayed ones."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from splatview.camera.sources import fitted

if TYPE_CHECKING:
    from fractions import Fraction

    from splatview.camera.sources import CaptureSettings

_MATRIX_BYTES = 36
"""A display matrix of FFmpeg: nine 32-bit integers."""
_MAX_SIDE = 16384
"""Pixels along a side beyond which a picture is not made wider."""
_MAX_PIXEL_ASPECT = 8.0
"""Width of a pixel over its height, or the inverse, beyond which a file's figure is an
error."""


@dataclass(frozen=True, slots=True)
class Orientation:
    """One of the eight ways to lay a picture: transposed first, then mirrored."""

    transposed: bool = False
    flipped_x: bool = False
    """Left and right change places."""
    flipped_y: bool = False
    """Top and bottom change places."""

    def apply(self, image: np.ndarray) -> np.ndarray:
        """Return a picture (H, W, C) as it is displayed.

        The same array if nothing changes.
        """
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
ORIENTATIONS_OF_EXIF = {
    1: UPRIGHT,
    2: Orientation(flipped_x=True),
    3: Orientation(flipped_x=True, flipped_y=True),
    4: Orientation(flipped_y=True),
    5: Orientation(transposed=True),
    6: Orientation(transposed=True, flipped_x=True),
    7: Orientation(transposed=True, flipped_x=True, flipped_y=True),
    8: Orientation(transposed=True, flipped_y=True),
}
"""The eight ways by EXIF's numbers."""
_EXIF_ORIENTATION = 0x112
_QUARTER_TURNS = (1, 8, 3, 6)
"""EXIF's numbers for turns of 0, 90, 180 and 270 degrees against the clock."""


def orientation_of(matrix: bytes) -> Orientation:
    """Return the orientation that is nearest to a display matrix, as FFmpeg stores it.

    The matrix maps a stored point (x, y) to the displayed point (a x + c y, b x + d y).
    One of another length, or without a direction, is UPRIGHT.
    """
    if len(matrix) != _MATRIX_BYTES:
        return UPRIGHT
    a, b, _, c, d = np.frombuffer(matrix, "=i4")[:5].tolist()
    if abs(b) + abs(c) > abs(a) + abs(d):
        return Orientation(transposed=True, flipped_x=c < 0, flipped_y=b < 0)
    return Orientation(flipped_x=a < 0, flipped_y=d < 0)


def orientation_of_angle(degrees: float) -> Orientation:
    """Return the orientation that is nearest to an angle against the clock."""
    quarters = round(degrees / 90) % 4
    return ORIENTATIONS_OF_EXIF[_QUARTER_TURNS[quarters]]


def exif_orientation(path: str) -> int:
    """Return EXIF's number for the orientation of a picture file.

    0 for none, and for a file that is no picture.
    """
    # Pillow has many errors, and warnings, for files that are damaged.
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        with Image.open(path) as picture:
            return int(picture.getexif().get(_EXIF_ORIENTATION, 0))
    return 0


def stored_size(
    width: int,
    height: int,
    pixel_aspect: Fraction | float | None,
    orientation: Orientation,
    settings: CaptureSettings,
) -> tuple[int, int]:
    """Return the size to scale a stored picture to, so that it fits once displayed.

    Pixels become square by making the picture wider or narrower, or, where it would be
    too wide, lower.

    Args:
        width: stored width in pixels.
        height: stored height in pixels.
        pixel_aspect: width of a pixel over its height; None or 0 for unknown.
        orientation: the orientation of the stored picture.
        settings: name the size to fit into.
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
