"""From pixels to a page: the newest picture is compared, encoded and sent at the pace that the page keeps."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import logging
import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.web.encoders import TurboEncoder, lossless
from splatview_viewer.web.messages import Picture
from splatview_viewer.web.pacing import IN_FLIGHT, RESTING, Level, Pacer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.screens.target import Copy
    from splatview_viewer.web.connection import Connection
    from splatview_viewer.web.encoders import Encoder

log = logging.getLogger("splatview")

REST = 0.25
"""Seconds without another picture after which the last one is sent without loss."""
PROMPT = 0.3
"""Seconds after input for which low latency matters more than the frame rate."""


@functools.cache
def workers() -> ThreadPoolExecutor:
    """The threads that encode for all pages. One core is left to the thread that draws."""
    return ThreadPoolExecutor(2, "encode")


class Sender:
    """One page's pictures. The thread that draws puts one in while it is `ready`; the page's connection takes messages
    out with `next`, in the web thread, and wakes the thread that draws when `ready` may have become true."""

    def __init__(self, connection: Connection, encoder: Encoder) -> None:
        self._connection = connection
        self._encoder = encoder
        self._pacer = Pacer()
        self._waiting: Copy | None = None
        self._encoding = False
        self._prompt = False
        """No picture is drawn while one is encoded."""
        self._prompt_until = 0.0
        self._shown: Copy | None = None
        """The picture that the page shows, or will when it has drawn all."""
        self._rests_at = math.inf
        self._resting: asyncio.Future[tuple[bytes, bool]] | None = None
        self._paused = False
        self._number = 0
        self._stream: Any = None
        connection.pictures = self

    # -- in the thread that draws ------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Another picture may be drawn: also while one is being encoded, except after input. The later it is drawn, the
        newer the input that it shows."""
        if self._waiting is not None or (self._encoding and self._prompt):
            return False
        return self._encoding + self._pacer.in_flight < IN_FLIGHT

    @property
    def level(self) -> Level:
        """The level of the next picture."""
        return self._pacer.level

    def used(self, now: float) -> None:
        """Note input at this time."""
        self._prompt, self._prompt_until = True, now + PROMPT

    def put(self, picture: Copy) -> None:
        """Send a picture, if it is not what the page has."""
        self._waiting = picture
        self._connection.work()

    def pause(self, on: bool) -> None:
        """Keep no picture while `on`. The next one after that is sent even if the page shows it already."""
        self._paused = on
        self._waiting = self._shown = None

    # -- in the web thread -------------------------------------------------------------------------------------------

    def acked(self, number: int, took: float, now: float) -> None:
        """Note what the page said at `now`: see Pacer.acked."""
        self._pacer.acked(number, took, now)
        self._connection.wake()

    @property
    def due(self) -> float:
        """When `next` has something to do by itself; inf: never as things are."""
        idle = self._shown is not None and self._resting is None and not self._pacer.in_flight
        return self._rests_at if idle else math.inf

    async def next(self, now: float) -> tuple[Picture, bytes] | None:
        """Return the next picture to send; None while there is none. Raises ViewerError where it cannot be encoded."""
        loop = asyncio.get_running_loop()
        if (picture := self._waiting) is not None:
            self._prompt = now < self._prompt_until
            level, self._encoding, self._waiting = self._pacer.level, True, None
            try:
                data = await loop.run_in_executor(workers(), self._encoded, picture, level)
                if data is None:
                    return None
                if not self._paused:
                    self._shown, self._rests_at = picture, loop.time() + REST
                return self._numbered(picture, data, level.quality)
            finally:
                self._encoding = False
                self._connection.wake()
        picture = self._shown
        if picture is not None and now >= self.due:  # beside the others: it takes long
            self._rests_at = math.inf
            self._resting = loop.run_in_executor(workers(), self._rested, picture)
            self._resting.add_done_callback(lambda _: self._connection.work())
        if self._resting is None or not self._resting.done():
            return None
        (data, exact), self._resting = self._resting.result(), None
        if picture is None or self._rests_at < math.inf:  # another picture was sent meanwhile
            return None
        return self._numbered(picture, data, 100 if exact else RESTING.quality, rests=True, exact=exact)

    def _numbered(self, picture: Copy, data: bytes, quality: int, *, rests: bool = False,
                  exact: bool = False) -> tuple[Picture, bytes]:
        self._number += 1
        self._pacer.sent(self._number, len(data), moves=not rests)
        at = 0.0 if rests else picture.at
        return Picture(self._number, "webp" if exact else "jpeg", picture.size, at, quality, exact), data

    # -- in a worker -------------------------------------------------------------------------------------------------

    def _encoded(self, picture: Copy, level: Level) -> bytes | None:
        """Return the file of a picture; None if it is what the page has."""
        with self._arrived(picture):
            shown = self._shown
            return None if shown is not None and _same(picture, shown) else self._jpeg(picture, level)

    def _rested(self, picture: Copy) -> tuple[bytes, bool]:
        """Return a picture without loss, or nearly so where the line is too slow, and which of the two it is."""
        with self._arrived(picture):
            data = lossless(picture.pixels, bottom_up=True)
            exact = self._pacer.lossless_allowed(len(data))
            return (data, True) if exact else (self._jpeg(picture, RESTING), False)

    def _jpeg(self, picture: Copy, level: Level) -> bytes:
        size = scaled(picture.size, level.scale)
        on_gpu = not isinstance(picture.pixels, np.ndarray)
        try:
            encoder = self._encoder if (self._encoder.device is not None) == on_gpu else TurboEncoder()
            return encoder.encode(picture.pixels, level.quality, bottom_up=True, size=size)
        except ViewerError as e:
            if isinstance(self._encoder, TurboEncoder):
                raise
            log.warning("pictures for a page are encoded on the CPU: %s", e)
            self._encoder = TurboEncoder(str(e), self._encoder.device)
            return self._jpeg(picture, level)

    @contextmanager
    def _arrived(self, picture: Copy) -> Iterator[None]:
        """Wait until the pixels are there; those on a GPU are used on a stream of this page's own."""
        if picture.arrived is None:
            yield
            return
        import torch

        with torch.cuda.device(picture.pixels.device):  # type: ignore[arg-type]
            if self._stream is None:
                self._stream = torch.cuda.Stream()
            picture.arrived.synchronize()  # sleeps, unlike the next wait: drawing may take long
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(picture.arrived)
                yield
                self._stream.synchronize()  # before the memory is used again


def scaled(size: tuple[int, int], scale: float) -> tuple[int, int]:
    """Return width and height of a smaller picture; at least 1. Halves and the like are rounded up, so that whole
    pixels of the large picture make one of the small."""
    whole = round(1 / scale)
    if abs(whole * scale - 1) < 1e-6:
        return -(-size[0] // whole), -(-size[1] // whole)
    return max(round(size[0] * scale), 1), max(round(size[1] * scale), 1)


def _same(a: Copy, b: Copy) -> bool:
    """Return whether two pictures are the same. Different ones mostly differ within a few rows."""
    if a.size != b.size:
        return False
    if isinstance(a.pixels, np.ndarray) and isinstance(b.pixels, np.ndarray):
        return _memcmp()(a.pixels.ctypes.data, b.pixels.ctypes.data, a.pixels.nbytes) == 0
    import torch

    assert isinstance(a.pixels, torch.Tensor) and isinstance(b.pixels, torch.Tensor)
    return torch.equal(a.pixels.view(torch.int32), b.pixels.view(torch.int32))


@functools.cache
def _memcmp() -> Any:
    """The C library's memcmp, which releases the interpreter's lock."""
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
    compare.restype = ctypes.c_int
    return compare
