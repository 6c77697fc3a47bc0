"""JPEG by libjpeg-turbo, on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.web.encoders.base import BEST, check, host_pixels, shrunk

if TYPE_CHECKING:
    from splatview_viewer.web.encoders.base import Pixels, Size
    from splatview_viewer.web.messages import Format


class TurboEncoder:
    """About 4 ms for a 1080p picture on one core; other threads go on meanwhile."""

    name: ClassVar[str] = "libjpeg-turbo"
    format: ClassVar[Format] = "jpeg"
    lossless: ClassVar[bool] = False
    cuda: ClassVar[bool] = False
    gpu_ms = None

    def __init__(self, reason: str = "") -> None:
        """`reason`: why no faster encoder is used."""
        try:
            from simplejpeg import encode_jpeg
        except ImportError as e:
            raise ViewerError(f"simplejpeg cannot be imported ({e}): pip install 'simplejpeg>=1.7'") from e
        self._encode = encode_jpeg
        self.reason = reason

    def encode(self, pixels: Pixels, quality: int, *, bottom_up: bool = False, size: Size | None = None) -> bytes:
        check(pixels, quality, size)
        array = host_pixels(pixels)
        if size is not None and size != (array.shape[1], array.shape[0]):
            array = np.asarray(shrunk(array, size))
        array = np.ascontiguousarray(array[::-1] if bottom_up else array)
        try:
            return self._encode(array, quality, "RGBX", "444" if quality >= BEST else "420", True)
        except (ValueError, RuntimeError) as e:
            raise ViewerError(f"libjpeg-turbo: a picture of {array.shape[1]} x {array.shape[0]} could not be "
                              f"encoded: {e}") from e

    def close(self) -> None:
        """Nothing is held."""
