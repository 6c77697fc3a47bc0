"""From pixels to a page: each newest picture is compared, encoded and sent.

A page tells how long each picture took from its first byte to its decoded image. While
that is more than SHRINK_ABOVE_S on average, the pictures shrink to about half their
bytes; below GROW_BELOW_S they grow step by step: with each picture until one was too
slow, then after some patience.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.web.encoders import TurboEncoder, encode_lossless
from splatview_viewer.web.messages import Picture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.screens.draw_target import Copy
    from splatview_viewer.web.encoders import Encoder
    from splatview_viewer.web.server import PageConnection

log = logging.getLogger("splatview")

IN_FLIGHT = 2
"""Pictures on their way at most."""


class Level(NamedTuple):
    quality: int
    """Quality of the JPEG, 1 to 100."""
    scale: float
    """Width and height over those of the framebuffer."""


LEVELS = (
    Level(85, 1.0),
    Level(75, 1.0),
    Level(65, 1.0),
    Level(55, 1.0),
    Level(65, 0.75),
    Level(55, 0.75),
    Level(45, 0.75),
    Level(55, 0.5),
    Level(45, 0.5),
    Level(35, 0.5),
    Level(45, 1 / 3),
    Level(35, 1 / 3),
    Level(35, 0.25),
)
"""The levels of a picture that moves, from the best on. Three levels are about half the
bytes."""
RESTING = Level(95, 1.0)
"""A picture that rests where one without loss is too large."""
GROW_BELOW_S = 0.036
"""Seconds that a picture may take to grow."""
SHRINK_ABOVE_S = 0.060
"""Seconds that a picture takes from which it shrinks. A level up is less than
SHRINK_ABOVE_S / GROW_BELOW_S more bytes."""
MAX_LOSSLESS_S = 1.0
"""Seconds that a picture without loss may take."""
_FIRST_LEVEL = 9
"""The level until a picture was acknowledged."""
_SHRINK_STEPS = 3
_MIN_PATIENCE_S = 0.25
_MAX_PATIENCE_S = 8.0
"""Seconds from a change to a step up; doubled each time that the step was wrong: it was
taken back within _TOO_SOON_S."""
_TOO_SOON_S = 3.0
REST_S = 0.25
"""Seconds without another picture after which the last one is sent without loss."""
_WEIGHT = 0.3
"""Weight of one picture in the averages."""
_COMPARED_ROWS = 64


class _SentPicture(NamedTuple):
    """A picture that was sent."""

    size_bytes: int
    moves: bool
    """True for one that was encoded at the level of pictures that move."""


class _EncodedPicture(NamedTuple):
    data: bytes
    quality: int
    """100: without loss."""


class Pacer:
    """Flow control for one page: chooses how large its pictures are.

    Numbers of pictures rise; `now` is in seconds by any clock that does not go back.
    """

    def __init__(self) -> None:
        self._sent: dict[int, _SentPicture] = {}
        """Pictures that were sent and are not acknowledged, by number."""
        self._level = _FIRST_LEVEL
        self._mean_s = 0.0
        """Average seconds of a picture at this level; 0: unknown."""
        self._s_per_byte = 1e-7
        self._changed_at = -math.inf
        self._rose_at = -math.inf
        self._patience_s = 0.0

    @property
    def level(self) -> Level:
        """The level of the next picture that moves."""
        return LEVELS[self._level]

    @property
    def in_flight(self) -> int:
        """Pictures that were sent and are not on the page yet."""
        return len(self._sent)

    def lossless_allowed(self, size_bytes: int) -> bool:
        """Return True if a picture that rests may have this size."""
        return size_bytes * self._s_per_byte <= MAX_LOSSLESS_S

    def sent(self, number: int, size_bytes: int, *, moves: bool = True) -> None:
        """Note a picture that was passed to the network.

        `moves` is True for one that was encoded at `level`.
        """
        self._sent[number] = _SentPicture(size_bytes, moves)

    def acked(self, number: int, took: float, now: float) -> None:
        """Note that a picture and all before it are on the page, or were skipped there.

        Args:
            number: of the picture.
            took: seconds from its first byte to its decoded image.
            now: seconds by the same clock as before.
        """
        picture = self._sent.get(number)
        self._sent = {n: sent for n, sent in self._sent.items() if n > number}
        if picture is None:
            return
        if picture.size_bytes:
            s_per_byte = took / picture.size_bytes
            self._s_per_byte += _WEIGHT * (s_per_byte - self._s_per_byte)
        if picture.moves:
            self._average(took)
            self._adapt(now)

    def _average(self, took: float) -> None:
        """Take the seconds of a picture that moves into the average."""
        if not self._mean_s:
            self._mean_s = took
            return
        # A single slow one may be an accident.
        took = min(took, 4 * self._mean_s + 0.05)
        self._mean_s += _WEIGHT * (took - self._mean_s)

    def _adapt(self, now: float) -> None:
        """Choose the level of the next picture by the average."""
        since_rise = now - self._rose_at
        if self._mean_s > SHRINK_ABOVE_S:
            if since_rise < _TOO_SOON_S:
                self._patience_s = min(self._patience_s * 2, _MAX_PATIENCE_S)
            self._patience_s = max(self._patience_s, _MIN_PATIENCE_S)
            self._change(_SHRINK_STEPS, now)
            return
        has_waited = now - self._changed_at >= self._patience_s
        if self._mean_s < GROW_BELOW_S and has_waited:
            if since_rise > 2 * _TOO_SOON_S:
                self._patience_s = min(self._patience_s, _MIN_PATIENCE_S)
            is_far_below = self._mean_s <= GROW_BELOW_S / 3
            self._change(-2 if is_far_below else -1, now)
            self._rose_at = now

    def _change(self, steps: int, now: float) -> None:
        """Go down by a number of levels, or up by a negative one."""
        level = min(max(self._level + steps, 0), len(LEVELS) - 1)
        if level != self._level:
            self._level = level
            self._mean_s = 0.0
            self._changed_at = now


@functools.cache
def encode_threads() -> ThreadPoolExecutor:
    """Return the threads that encode for all pages.

    One core is left to the thread that draws.
    """
    return ThreadPoolExecutor(2, "encode")


class Sender:
    """One page's pictures.

    The thread that draws calls `put` while the sender is `ready`; the page's connection
    takes messages out with `next`, in the web thread, and wakes the thread that draws
    when `ready` may have become true.
    """

    def __init__(self, connection: PageConnection, encoder: Encoder) -> None:
        self._connection = connection
        self._encoder = encoder
        self._pacer = Pacer()
        self._waiting: Copy | None = None
        self._encoding = False
        self._last_picture: Copy | None = None
        """The picture that the page shows, or will when it has drawn all."""
        self._rests_at = math.inf
        self._number = 0
        self._stream: Any = None
        self._clear_count = 0
        """Calls of `clear`: a picture that was encoded meanwhile is not remembered."""
        self._closed = False
        self._lock = Lock()
        self._running = 0
        """Number of encodings that run now."""
        connection.pictures = self

    # -- in the thread that draws ------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True if another picture may be drawn: also while one is being encoded."""
        if self._waiting is not None:
            return False
        return self._encoding + self._pacer.in_flight < IN_FLIGHT

    @property
    def is_encoding(self) -> bool:
        """True while an encoding runs, which may be of a page that has gone."""
        return self._running > 0

    @property
    def level(self) -> Level:
        """The level of the next picture."""
        return self._pacer.level

    def put(self, picture: Copy) -> None:
        """Send a picture, if it is not what the page has."""
        if not self._closed:
            self._waiting = picture
            self._connection.wake_writer()

    def clear(self) -> None:
        """Forget all pictures: the next one is sent even if the page shows it already."""
        self._clear_count += 1
        self._waiting = None
        self._last_picture = None

    def close(self) -> None:
        """Take no picture from now on. Idempotent."""
        self._closed = True
        self.clear()
        self._stream = None

    # -- in the web thread -------------------------------------------------------------

    def acked(self, number: int, took: float, now: float) -> None:
        """Pass an acknowledgement of the page on to the pacer: see `Pacer.acked`."""
        self._pacer.acked(number, took, now)
        self._connection.wake()

    async def next(self) -> tuple[Picture, bytes] | None:
        """Return the next picture to send, and its image; None while there is none.

        Raises:
            ViewerError: the picture cannot be encoded.
        """
        # This is read first, since the thread that draws may call `clear` at any time.
        clear_count = self._clear_count
        picture = self._waiting
        if picture is not None:
            message = await self._encode_waiting(picture, clear_count)
            if message is not None:
                return message
        return await self._encode_resting()

    async def _encode_waiting(
        self, picture: Copy, clear_count: int
    ) -> tuple[Picture, bytes] | None:
        """Encode the picture that waits; None if the page shows the same already.

        `clear_count` is from before the picture was taken.
        """
        loop = asyncio.get_running_loop()
        level = self._pacer.level
        self._encoding = True
        self._waiting = None
        previous = self._last_picture
        self._last_picture = picture
        if clear_count != self._clear_count:
            self._last_picture = None
        try:
            encoded = await loop.run_in_executor(
                encode_threads(), self._encode, picture, previous, level
            )
            if encoded is None:
                return None
            self._rests_at = loop.time() + REST_S
            loop.call_later(REST_S + 0.01, self._connection.wake_writer)
            return self._message(picture, encoded)
        finally:
            self._encoding = False
            self._connection.wake()

    async def _encode_resting(self) -> tuple[Picture, bytes] | None:
        """Encode the last picture without loss once it rests; None until then."""
        loop = asyncio.get_running_loop()
        picture = self._last_picture
        if picture is None or self._pacer.in_flight or loop.time() < self._rests_at:
            return None
        encoded = await loop.run_in_executor(
            encode_threads(), self._encode, picture, None, None
        )
        is_replaced = self._waiting is not None or picture is not self._last_picture
        if encoded is None or is_replaced:
            return None
        self._rests_at = math.inf
        return self._message(picture, encoded, rests=True)

    def _message(
        self, picture: Copy, encoded: _EncodedPicture, *, rests: bool = False
    ) -> tuple[Picture, bytes]:
        """Give a picture its number, and return it as it is sent."""
        self._number += 1
        self._pacer.sent(self._number, len(encoded.data), moves=not rests)
        is_lossless = encoded.quality == 100
        message = Picture(
            number=self._number,
            format="webp" if is_lossless else "jpeg",
            size=picture.size,
            at=0.0 if rests else picture.at,
            quality=encoded.quality,
            lossless=is_lossless,
        )
        return message, encoded.data

    # -- in a worker -------------------------------------------------------------------

    def _encode(
        self, picture: Copy, previous: Copy | None, level: Level | None
    ) -> _EncodedPicture | None:
        """Encode a picture, unless it is the same as the previous one.

        Args:
            picture: with its pixels.
            previous: what the page shows; None to encode in any case.
            level: None for no loss, or hardly any where the line is too slow.

        Returns:
            The file; None for the same picture, and for a page that has gone.
        """
        if self._closed:
            return None
        with self._count_encoding(), self._pixels_of(picture):
            if previous is not None and _same_pixels(picture, previous):
                return None
            if level is None:
                data = encode_lossless(picture.pixels)
                if self._pacer.lossless_allowed(len(data)):
                    return _EncodedPicture(data, 100)
                level = RESTING
            return _EncodedPicture(self._jpeg(picture, level), level.quality)

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
            if self._stream is None:
                self._stream = torch.cuda.Stream()
            # Sleeps, unlike the next wait: drawing may take long.
            picture.arrived.synchronize()
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(picture.arrived)
                yield
                # The memory is used again afterwards.
                self._stream.synchronize()


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
