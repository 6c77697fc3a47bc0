"""Encoding of one page's pictures, in worker threads."""

from __future__ import annotations

import functools
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.web.encoders import TurboEncoder, encode_lossless
from splatview_viewer.web.pacer import RESTING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.screens.draw_target import Copy
    from splatview_viewer.web.encoders import Encoder
    from splatview_viewer.web.pacer import Level, Pacer

log = logging.getLogger("splatview")

_COMPARED_ROWS = 64


class EncodedPicture(NamedTuple):
    data: bytes
    quality: int
    """100: without loss."""


@functools.cache
def encode_threads() -> ThreadPoolExecutor:
    """Return the threads that encode for all pages.

    One core is left to the thread that draws.
    """
    return ThreadPoolExecutor(2, "encode")


class PageEncoder:
    """Encodes the pictures of one page. Called in worker threads."""

    def __init__(self, encoder: Encoder, pacer: Pacer) -> None:
        """Start to encode.

        Args:
            encoder: of pictures that may lose.
            pacer: knows how large a picture without loss may be.
        """
        self.closed = False
        """The page has gone: nothing is encoded any more."""
        self._encoder = encoder
        self._pacer = pacer
        self._stream: Any = None
        self._lock = Lock()
        self._running = 0
        """Number of encodings that run now."""

    def close(self) -> None:
        """Encode nothing from now on. Idempotent."""
        self.closed = True
        self._stream = None

    def encode(
        self, picture: Copy, previous: Copy | None, level: Level | None
    ) -> EncodedPicture | None:
        """Encode a picture, unless it is the same as the previous one.

        Args:
            picture: with its pixels.
            previous: what the page shows; None to encode in any case.
            level: None for no loss, or hardly any where the line is too slow.

        Returns:
            The file; None for the same picture, and for a page that has gone.
        """
        if self.closed:
            return None
        with self._count_encoding(), self._pixels_of(picture):
            if previous is not None and _same_pixels(picture, previous):
                return None
            if level is None:
                data = encode_lossless(picture.pixels)
                if self._pacer.lossless_allowed(len(data)):
                    return EncodedPicture(data, 100)
                level = RESTING
            return EncodedPicture(self._jpeg(picture, level), level.quality)

    def _jpeg(self, picture: Copy, level: Level) -> bytes:
        """Encode a picture as JPEG, on the CPU where the GPU cannot."""
        size = scaled_size(picture.size, level.scale)
        is_on_cpu = isinstance(picture.pixels, np.ndarray)
        if is_on_cpu and not isinstance(self._encoder, TurboEncoder):
            self._encoder = TurboEncoder("", self._encoder.device)
        try:
            return self._encoder.encode(picture.pixels, level.quality, size=size)
        except ViewerError as e:
            if isinstance(self._encoder, TurboEncoder):
                raise
            log.warning("pictures for a page are encoded on the CPU: %s", e)
            self._encoder = TurboEncoder(str(e), self._encoder.device)
            return self._encoder.encode(picture.pixels, level.quality, size=size)

    @property
    def is_encoding(self) -> bool:
        """True while an encoding runs, which may be of a page that has gone."""
        return self._running > 0

    @contextmanager
    def _count_encoding(self) -> Iterator[None]:
        """Count an encoding that runs, also of a page that has gone meanwhile."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    @contextmanager
    def _pixels_of(self, picture: Copy) -> Iterator[None]:
        """Wait until the pixels are there.

        Those on a GPU are used on a stream of this page's own.
        """
        if picture.arrived is None:
            yield
            return
        import torch

        with torch.cuda.device(picture.pixels.device):  # type: ignore[arg-type]
            # The page may go, and its stream with it, before all is done.
            stream = self._stream or torch.cuda.Stream()
            self._stream = stream
            # Sleeps, unlike the next wait: drawing may take long.
            picture.arrived.synchronize()
            with torch.cuda.stream(stream):
                stream.wait_event(picture.arrived)
                yield
                # The memory is used again afterwards.
                stream.synchronize()


def scaled_size(size: tuple[int, int], scale: float) -> tuple[int, int]:
    """Return width and height of a smaller picture; at least 1.

    Halves and the like are rounded up, so that whole pixels of the large picture make
    one of the small.
    """
    width, height = size
    divisor = round(1 / scale)
    if abs(divisor * scale - 1) < 1e-6:
        return ceil_div(width, divisor), ceil_div(height, divisor)
    return max(round(width * scale), 1), max(round(height * scale), 1)


def _same_pixels(a: Copy, b: Copy) -> bool:
    """Return True if two pictures are the same."""
    if a.size != b.size:
        return False
    if isinstance(a.pixels, np.ndarray) and isinstance(b.pixels, np.ndarray):
        return _same_arrays(a.pixels, b.pixels)
    import torch

    assert isinstance(a.pixels, torch.Tensor)
    assert isinstance(b.pixels, torch.Tensor)
    return torch.equal(a.pixels.view(torch.int32), b.pixels.view(torch.int32))


def _same_arrays(a: np.ndarray, b: np.ndarray) -> bool:
    """Return True if two arrays of pixels are the same.

    They are compared by blocks of rows: different pictures mostly differ within a few.
    """
    for row in range(0, len(a), _COMPARED_ROWS):
        block = slice(row, row + _COMPARED_ROWS)
        if not np.array_equal(a[block].view(np.uint32), b[block].view(np.uint32)):
            return False
    return True
