"""Memory for the pictures of all connected pages together, and each page's share of it.

A page holds a texture to draw into, its last picture, one that is encoded, one that is drawn meanwhile, and what waits
to be sent. All of that grows with its number of pixels, so a page's share is a number of pixels. Pages that ask for
less than an equal part get all they ask for; the others share what is left. Pages that show nothing (hidden, or not
acknowledging pictures) hold nothing and ask for nothing.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from splatview_ipc.system.free_memory import available_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST, LEAST = 512 * 1024**2, 64 * 1024**2
"""Bytes for all pages, at most and at least."""
FREE_SHARE = 4
"""At most one part in so many of the memory that is free goes to pages."""
PER_PIXEL = 20
"""Bytes that a page holds for each of its pixels: the texture, three pictures and what waits to be sent, 4 each."""
ENCODING_SHARE = 4
"""One part in so many is kept for encoding, which needs memory only while it runs."""
JPEG_BYTES, LOSSLESS_BYTES = 9, 16
"""Bytes for each pixel that encoding takes in addition, the encoded file included; measured with noise. Without loss
it is 28, but then nothing else of the page's is drawn, encoded or sent: 12 of its PER_PIXEL are free."""
_NO_LIMIT = 1 << 62
_ARENA_KEPT, _MAPPED_FROM = 8 * 1024**2, 32 * 1024**2
"""Free bytes that glibc may keep at the end of each thread's arena; the size from which a block is mapped by itself."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_TRIMS = 3
"""Calls of malloc_trim after a release: threads of drivers and encoders free their memory a little later."""
_TRIM_AFTER = 0.3
"""Seconds from a release of memory to its return to the system: pages often leave together."""


class PageBudget:
    """Divides one amount of memory among pages. Usable from any thread."""

    def __init__(self, total: int | None = None) -> None:
        """`total`: bytes; None: MOST, or less where little is free when a page connects."""
        _bound_arenas()
        self._fixed = total
        self.total = _default_total(0) if total is None else total
        self.version = 0
        """Changes whenever a share may have changed."""
        self._asked: dict[object, int] = {}
        self._level = _NO_LIMIT
        self._encoding = 0
        self._changed = threading.Condition()
        self._trims = 0
        """Remaining calls of malloc_trim; a timer for the next one runs."""

    @property
    def reserved(self) -> int:
        """Bytes that pages may hold by their present shares."""
        with self._changed:
            return self._reserved()

    def _reserved(self) -> int:
        return sum(min(pixels, self._level) for pixels in self._asked.values()) * PER_PIXEL

    @property
    def pages(self) -> int:
        """Number of pages that show something."""
        with self._changed:
            return sum(map(bool, self._asked.values()))

    def ask(self, page: object, pixels: int) -> None:
        """Set the number of pixels that a page would like to have; 0 while it shows nothing."""
        with self._changed:
            if page not in self._asked and self._fixed is None:
                self.total = _default_total(self._reserved())
            elif self._asked.get(page) == pixels:
                return
            self._asked[page] = pixels
            self._divide()

    def leave(self, page: object) -> None:
        """Forget a page. Idempotent."""
        with self._changed:
            if self._asked.pop(page, None) is not None:
                self._divide()

    def pixels(self, page: object) -> int:
        """Return how many pixels a page may have."""
        with self._changed:
            return min(self._asked.get(page, 0), self._level)

    def _divide(self) -> None:
        left = (self.total - self.total // ENCODING_SHARE) // PER_PIXEL
        asked = sorted(filter(None, self._asked.values()))
        level = _NO_LIMIT
        for i, pixels in enumerate(asked):
            part = left // (len(asked) - i)
            if pixels > part:
                level = part
                break
            left -= pixels
        self._level = level
        self.version += 1
        self._changed.notify_all()

    def fits_encoding(self, size: int) -> bool:
        """Return whether `size` bytes for encoding would fit beside what pages hold."""
        with self._changed:
            return size <= self.total - self._reserved()

    @contextmanager
    def encoding(self, size: int) -> Iterator[None]:
        """Wait until `size` bytes for encoding fit beside what pages hold and others encode. One always may."""
        with self._changed:
            self._changed.wait_for(lambda: not self._encoding
                                   or self._encoding + size <= self.total - self._reserved())
            self._encoding += size
        try:
            yield
        finally:
            with self._changed:
                self._encoding -= size
                self._changed.notify_all()

    def freed(self) -> None:
        """Return freed memory to the system soon.

        OpenGL's software rasteriser and the encoders allocate with malloc. glibc keeps freed blocks of up to 32 MB for
        later allocations unless it is told to give them back; of the end of each thread's arena `_bound_arenas` returns
        them.
        """
        if _malloc_trim() is None:
            return
        with self._changed:
            waiting, self._trims = self._trims > 0, _TRIMS
        if not waiting:
            self._trim_later()

    def _trim_later(self) -> None:
        timer = threading.Timer(_TRIM_AFTER, self._trim)
        timer.daemon = True
        timer.start()

    def _trim(self) -> None:
        trim = _malloc_trim()
        if trim is not None:
            trim(0)
        with self._changed:
            self._trims -= 1
            again = self._trims > 0
        if again:
            self._trim_later()


def _default_total(reserved: int) -> int:
    """Return the bytes for all pages, of which `reserved` may be in use already."""
    free = available_bytes()
    return MOST if free is None else max(min(MOST, (free + reserved) // FREE_SHARE), LEAST)


@functools.cache
def _bound_arenas() -> None:
    """Bound what arenas of this process keep. glibc raises both thresholds with the largest block that was freed, up to
    64 MB for the end of an arena, and malloc_trim does not return the ends of arenas other than the first."""
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None and _malloc_trim() is not None:
        adjust(_M_MMAP_THRESHOLD, _MAPPED_FROM)
        adjust(_M_TRIM_THRESHOLD, _ARENA_KEPT)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    """glibc's malloc_trim; None with another C library."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim
