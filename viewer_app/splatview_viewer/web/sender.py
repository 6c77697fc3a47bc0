"""From pixels to a page: compares, encodes and sends in worker threads, at the pace that the page keeps."""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.web.encoders.base import host_pixels
from splatview_viewer.web.encoders.lossless import LosslessEncoder
from splatview_viewer.web.messages import Picture
from splatview_viewer.web.pacing import IN_FLIGHT, RESTING, Level, Pacer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from splatview_viewer.screens._readback import Frame
    from splatview_viewer.web.connection import Connection
    from splatview_viewer.web.encoders.base import Encoder

log = logging.getLogger("splatview")

REST = 0.25
"""Seconds without another picture after which the last one is sent without loss."""
PROMPT = 0.3
"""Seconds after input for which low latency matters more than the frame rate."""
_REST_AT_FIRST = 0.05
"""The same for the first picture, which is small because nothing is known of the line."""
_AGAIN = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Delays in seconds before each retry of a lossless picture that was too large for the measured line. While nothing
else is sent, only these retries show that the line has become faster."""
UNREAD = 10.0
"""Seconds after which a page that acknowledges no picture gives back the memory for its pictures until it does."""
_ANSWERED = 0.25
"""Seconds within which another picture may still be the answer to an event."""


@functools.cache
def workers() -> Executor:
    """The threads that encode for all pages. One core is left to the thread that draws."""
    return ThreadPoolExecutor(2, "encode")


class Sender:
    """One page's pictures. `send`, `rest` and `close` belong to the thread that draws, the others to any thread."""

    def __init__(self, connection: Connection, encoder: Encoder, changed: Callable[[], None], *,
                 pool: Executor | None = None) -> None:
        """`changed` is called in any thread when `ready` may have become true."""
        self.took: deque[tuple[tuple[int, int], float]] = deque(maxlen=64)
        """Sizes of pictures that the GPU encoded, and the milliseconds that it took."""
        self._connection = connection
        self._encoder = encoder
        self._changed = changed
        self._pool = pool or workers()
        self._pacer = Pacer()
        self._lock = threading.Lock()
        self._next: tuple[Frame, Level] | None = None
        """What is to be encoded next."""
        self._busy = False
        """Whether a worker encodes."""
        self._resting = self._closed = self._failed = self._suspended = False
        self._number = 0
        self._last: Frame | None = None
        """What the page shows, or will when it has drawn all."""
        self._due = math.inf
        self._lossless_bytes, self._withheld = 0, 0
        """Bytes of the last picture without loss (0: unknown), and how often it was sent as a JPEG instead."""
        self._unanswered = 0.0, 0.0
        self._prompt_until = 0.0
        self._stream: Any = None

    @property
    def ready(self) -> bool:
        """Whether another picture may be sent."""
        with self._lock:
            return self._is_ready()

    def _is_ready(self) -> bool:
        """A picture may be drawn while another is being encoded, except after input: the later it is drawn, the newer
        the input that it shows. The lock must be held."""
        most = 0 if time.monotonic() < self._prompt_until else IN_FLIGHT - 1
        encoding = self._busy + (self._next is not None)
        return encoding <= most and encoding + self._pacer.in_flight < IN_FLIGHT and not self._closed

    def used(self, now: float) -> None:
        """Note input at `now` of time.monotonic()."""
        self._prompt_until = now + PROMPT

    @property
    def due(self) -> float:
        """When `rest` has something to do, by time.monotonic(); inf: never as things are."""
        with self._lock:
            return math.inf if self._busy or self._resting or self._pacer.in_flight else self._due

    @property
    def level(self) -> Level:
        """What the next picture will be."""
        with self._lock:
            return self._pacer.level

    def acked(self, number: int, now: float) -> None:
        """Picture `number` stands on the page, as it said at `now` of time.monotonic()."""
        with self._lock:
            before = self._is_ready()
            self._pacer.acked(number, now)
            became = self._is_ready() and not before
        if became:
            self._changed()

    def hidden(self) -> None:
        """The page is hidden from now on."""
        with self._lock:
            self._pacer.pause()

    def unread(self, now: float) -> bool:
        """Return whether a picture was sent UNREAD seconds ago and is not acknowledged yet."""
        with self._lock:
            since = self._pacer.waiting_since
        return since is not None and now - since > UNREAD

    def suspend(self, on: bool) -> None:
        """Keep no picture while `on`. The next picture after that is sent even if the page shows it already."""
        with self._lock:
            self._suspended = on
            self._last, self._due = None, math.inf

    def send(self, frame: Frame) -> None:
        """Send a picture, if it is not what the page has, in place of one that still waits to be encoded."""
        with self._lock:
            if self._closed:
                return
            self._next = frame, self._pacer.level
            start, self._busy = not self._busy, True
        if start:
            self._pool.submit(self._send_newest)

    def rest(self) -> None:
        """Send what the page shows without loss, if it is time to."""
        if self.due > time.monotonic():
            return
        with self._lock:
            frame, self._due = self._last, math.inf
            if frame is None or self._closed:
                return
            self._resting = True
        self._pool.submit(self._send_rest, frame)

    def close(self) -> None:
        """Send nothing more. Waits for nothing: what is being encoded is dropped. Idempotent."""
        with self._lock:
            self._closed = True
            self._last, self._next, self._due = None, None, math.inf

    # -- in a worker -----------------------------------------------------------------------------------------

    def _send_newest(self) -> None:
        """Encode and send until nothing waits. One worker at a time does it, so that pictures go out in their order."""
        while True:
            with self._lock:
                waiting, self._next = self._next, None
            encoded = self._try(self._encoded, *waiting) if waiting is not None else None
            with self._lock:  # one lock for both, so that no picture counts twice
                before = self._is_ready()
                if encoded is not None and waiting is not None:
                    self._try(self._show, *waiting, *encoded)
                self._busy = self._next is not None
                more, became = self._busy, self._is_ready() and not before
            if became:
                self._changed()
            if not more:
                return

    def _send_rest(self, frame: Frame) -> None:
        self._try(self._rest, frame)
        with self._lock:
            self._resting = False

    def _try(self, work: Callable[..., Any], *args: Any) -> Any:
        """Return the result. A fault ends this page only, and the result is None."""
        try:
            if not self._closed:
                return work(*args)
        except Exception as e:
            self._fail(e)
        return None

    def _fail(self, e: Exception) -> None:
        if not isinstance(e, ViewerError):
            log.error("A picture for the page at %s could not be sent", self._connection.peer, exc_info=e)
        self._connection.close(f"no picture could be sent: {e}")

    def _encoded(self, frame: Frame, level: Level) -> tuple[bytes, tuple[int, int]] | None:
        """Return the file of a picture and its size; None if it is what the page has."""
        with self._arrived(frame):
            last = self._last
            if last is None or not _same(frame, last):
                return self._encode(frame, level)
            if frame.at:
                self._unanswered = frame.at, frame.taken
            return None

    def _show(self, frame: Frame, level: Level, data: bytes, size: tuple[int, int]) -> None:
        """Hand an encoded picture to the network. The lock must be held."""
        now = time.monotonic()
        at, taken = frame.at, frame.taken
        if not at and now - self._unanswered[1] < _ANSWERED:  # the picture before was the same: this is the answer
            at, taken = self._unanswered
        self._unanswered = 0.0, 0.0
        if not self._suspended:
            self._due = now + (REST if self._pacer.known else _REST_AT_FIRST)
            self._last = frame
            self._lossless_bytes = self._withheld = 0
        self._put(data, self._encoder.format, size, frame, level, at=at, spent=int((now - taken) * 1e6) if at else 0)

    def _encode(self, frame: Frame, level: Level) -> tuple[bytes, tuple[int, int]]:
        """The file of a picture, and its size in pixels."""
        size = scaled(frame.size, level.scale)
        if not self._failed:
            try:
                data = self._encoder.encode(frame.pixels, level.quality, bottom_up=True, size=size)
                if self._encoder.gpu_ms is not None:
                    self.took.append((size, self._encoder.gpu_ms))
                return data, size
            except ViewerError as e:
                if not self._encoder.cuda:
                    raise
                self._failed = True
                log.warning("Pictures for the page at %s are encoded on the CPU: %s", self._connection.peer, e)
        from splatview_viewer.web.encoders.turbo import TurboEncoder

        return TurboEncoder().encode(host_pixels(frame.pixels), level.quality, bottom_up=True, size=size), size

    def _rest(self, frame: Frame) -> None:
        with self._lock:
            if self._last is not frame:
                return
            size = self._lossless_bytes
            allowed = self._pacer.lossless_allowed(size)
        with self._arrived(frame):
            lossless, data, level = LosslessEncoder(), b"", None
            if allowed:
                data = lossless.encode(host_pixels(frame.pixels), bottom_up=True)
                size = len(data)
                with self._lock:
                    allowed = self._pacer.lossless_allowed(size)
            if not allowed and self._last is frame:
                level = Level(RESTING, 1.0)
                data, _ = self._encode(frame, level)
        with self._lock:
            if self._last is not frame or self._closed:
                return  # a newer picture was sent meanwhile
            if self._busy or self._pacer.in_flight:
                self._due = time.monotonic() + REST
                return
            if not allowed:
                self._lossless_bytes, self._withheld = size, self._withheld + 1
                if self._withheld <= len(_AGAIN):
                    self._due = time.monotonic() + _AGAIN[self._withheld - 1]
            self._put(data, lossless.format if level is None else self._encoder.format, frame.size, frame, level,
                      resting=True)

    def _put(self, data: bytes, form: Any, size: tuple[int, int], frame: Frame, level: Level | None, *,
             at: float = 0.0, spent: int = 0, resting: bool = False) -> None:
        """Hand it to the network. The lock must be held, so that numbers rise."""
        self._number += 1
        self._pacer.sent(self._number, len(data), time.monotonic(), None if resting else level)
        self._connection.send_picture(Picture(
            self._number, form, size, frame.size, at, spent, 100 if level is None else level.quality,
            level is None, data))

    @contextmanager
    def _arrived(self, frame: Frame) -> Iterator[None]:
        """Wait until the pixels are there; those on a GPU are used on a stream of this page's own."""
        if frame.arrived is None:
            yield
            return
        import torch

        with torch.cuda.device(frame.pixels.device):  # type: ignore[arg-type]
            if self._stream is None:
                self._stream = torch.cuda.Stream()
            frame.arrived.synchronize()  # sleeps, unlike the next wait: drawing may take long
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(frame.arrived)
                yield
                self._stream.synchronize()  # before the memory is used again


def scaled(size: tuple[int, int], scale: float) -> tuple[int, int]:
    """Width and height of a smaller picture; at least 1. Halves and the like are rounded up, so that whole pixels of
    the large picture make one of the small."""
    whole = round(1 / scale)
    if abs(whole * scale - 1) < 1e-6:
        return -(-size[0] // whole), -(-size[1] // whole)
    return max(round(size[0] * scale), 1), max(round(size[1] * scale), 1)


def _same(a: Frame, b: Frame) -> bool:
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
