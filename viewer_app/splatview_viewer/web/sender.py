"""From pixels to a page: the newest picture is compared, encoded and sent at the pace
that the page keeps.

A page tells how long each picture took from its first byte to its decoded image. While
that is more than BAD seconds on average, the pictures shrink to about half their bytes;
below GOOD seconds they grow step by step: with each picture until one was too slow,
then after some patience.
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
SHRINK_ABOVE_S = 0.060
"""Seconds that a picture may take to grow, and from which it shrinks. A level up is
less than BAD / GOOD more bytes."""
MAX_LOSSLESS_S = 1.0
"""Seconds that a picture without loss may take."""
_FIRST = 9
"""The level until a picture was acknowledged."""
_PATIENCE = 0.25
_MOST_PATIENCE = 8.0
"""Seconds from a change to a step up; doubled each time that the step was wrong: it was
taken back within _TOO_SOON."""
_TOO_SOON = 3.0
REST_S = 0.25
"""Seconds without another picture after which the last one is sent without loss."""
_WEIGHT = 0.3
"""Weight of one picture in the averages."""


class Pacer:
    """Flow control for one page.

    Numbers of pictures rise; `now` is in seconds by any clock that does not go back.
    """

    def __init__(self) -> None:
        self._sent: dict[int, tuple[int, bool]] = {}
        """Bytes of each picture that was sent and is not acknowledged, and whether it
        moves."""
        self._level = _FIRST
        self._took = 0.0
        """Average seconds of a picture at this level; 0: unknown."""
        self._per_byte = 1e-7
        self._changed_at = self._rose_at = -math.inf
        self._patience = 0.0

    @property
    def level(self) -> Level:
        """The level of the next picture that moves."""
        return LEVELS[self._level]

    @property
    def in_flight(self) -> int:
        """Pictures that were sent and are not on the page yet."""
        return len(self._sent)

    def lossless_allowed(self, size_bytes: int) -> bool:
        """Return whether a picture that rests may have this size."""
        return size_bytes * self._per_byte <= MAX_LOSSLESS_S

    def sent(self, number: int, size_bytes: int, *, moves: bool = True) -> None:
        """Note a picture that was given to the network. `moves`: encoded at `level`."""
        self._sent[number] = size_bytes, moves

    def acked(self, number: int, took: float, now: float) -> None:
        """Note that a picture and all before it are on the page, or were skipped there.

        `took`: seconds.
        """
        size, moves = self._sent.get(number, (0, False))
        self._sent = {n: sent for n, sent in self._sent.items() if n > number}
        if size:
            self._per_byte += _WEIGHT * (took / size - self._per_byte)
        if not moves:
            return
        # a single one may be an accident
        if self._took:
            took = min(took, 4 * self._took + 0.05)
        self._took = self._took + _WEIGHT * (took - self._took) if self._took else took
        if self._took > SHRINK_ABOVE_S:
            if now - self._rose_at < _TOO_SOON:
                self._patience = min(self._patience * 2, _MOST_PATIENCE)
            self._patience = max(self._patience, _PATIENCE)
            self._change(3, now)
        elif self._took < GROW_BELOW_S and now - self._changed_at >= self._patience:
            if now - self._rose_at > 2 * _TOO_SOON:
                self._patience = min(self._patience, _PATIENCE)
            self._change(-1 if self._took > GROW_BELOW_S / 3 else -2, now)
            self._rose_at = now

    def _change(self, steps: int, now: float) -> None:
        level = min(max(self._level + steps, 0), len(LEVELS) - 1)
        if level != self._level:
            self._level = level
            self._took = 0.0
            self._changed_at = now


@functools.cache
def encode_threads() -> ThreadPoolExecutor:
    """The threads that encode for all pages.

    One core is left to the thread that draws.
    """
    return ThreadPoolExecutor(2, "encode")


class Sender:
    """One page's pictures.

    The thread that draws puts one in while it is `ready`; the page's connection takes
    messages out with `next`, in the web thread, and wakes the thread that draws when
    `ready` may have become true.
    """

    def __init__(self, connection: PageConnection, encoder: Encoder) -> None:
        self._connection = connection
        self._encoder = encoder
        self._pacer = Pacer()
        self._waiting: Copy | None = None
        self._encoding = False
        self._shown: Copy | None = None
        """The picture that the page shows, or will when it has drawn all."""
        self._rests_at = math.inf
        self._number = 0
        self._stream: Any = None
        self._cleared = 0
        """Counts `clear`: a picture that was taken out before it is kept no more."""
        self._closed = False
        self._lock = Lock()
        self._running = 0
        """Encodings that run just now."""
        connection.pictures = self

    # -- in the thread that draws ------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Another picture may be drawn: also while one is being encoded."""
        return (
            self._waiting is None and self._encoding + self._pacer.in_flight < IN_FLIGHT
        )

    @property
    def is_encoding(self) -> bool:
        """An encoding runs, which may be of a page that has gone."""
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
        """Keep no picture. The next one is sent even if the page shows it already."""
        self._cleared += 1
        self._waiting = None
        self._shown = None

    def close(self) -> None:
        """Keep no picture from now on. Idempotent."""
        self._closed = True
        self.clear()
        self._stream = None

    # -- in the web thread -------------------------------------------------------------

    def acked(self, number: int, took: float, now: float) -> None:
        """Note what the page said at `now`: see Pacer.acked."""
        self._pacer.acked(number, took, now)
        self._connection.wake()

    async def next(self) -> tuple[Picture, bytes] | None:
        """Return the next picture to send; None while there is none.

        Raises ViewerError where it cannot be encoded.
        """
        loop = asyncio.get_running_loop()
        cleared = self._cleared
        picture = self._waiting
        if picture is not None:
            level = self._pacer.level
            self._encoding = True
            self._waiting = None
            before = self._shown
            self._shown = picture
            if cleared != self._cleared:
                self._shown = None
            try:
                made = await loop.run_in_executor(
                    encode_threads(), self._encode, picture, before, level
                )
                if made is not None:
                    self._rests_at = loop.time() + REST_S
                    loop.call_later(REST_S + 0.01, self._connection.wake_writer)
                    return self._numbered(picture, *made)
            finally:
                self._encoding = False
                self._connection.wake()
        picture = self._shown
        if picture is None or self._pacer.in_flight or loop.time() < self._rests_at:
            return None
        made = await loop.run_in_executor(
            encode_threads(), self._encode, picture, None, None
        )
        if (
            made is None or self._waiting is not None or picture is not self._shown
        ):  # another one comes first
            return None
        self._rests_at = math.inf
        return self._numbered(picture, *made, rests=True)

    def _numbered(
        self, picture: Copy, data: bytes, quality: int, *, rests: bool = False
    ) -> tuple[Picture, bytes]:
        self._number += 1
        self._pacer.sent(self._number, len(data), moves=not rests)
        at = 0.0 if rests else picture.at
        exact = quality == 100
        return Picture(
            self._number, "webp" if exact else "jpeg", picture.size, at, quality, exact
        ), data

    # -- in a worker -------------------------------------------------------------------

    def _encode(
        self, picture: Copy, before: Copy | None, level: Level | None
    ) -> tuple[bytes, int] | None:
        """Return the file of a picture and its quality; None if it is the same as the
        one before. Without `level` it has no loss (100), or hardly any where the line
        is too slow. None as well for a page that has gone.
        """
        if self._closed:
            return None
        with self._counted(), self._arrived(picture):
            if before is not None and _same(picture, before):
                return None
            if level is None:
                data = encode_lossless(picture.pixels)
                if self._pacer.lossless_allowed(len(data)):
                    return data, 100
            level = level or RESTING
            return self._jpeg(picture, level), level.quality

    def _jpeg(self, picture: Copy, level: Level) -> bytes:
        size = scaled_size(picture.size, level.scale)
        if isinstance(picture.pixels, np.ndarray) and not isinstance(
            self._encoder, TurboEncoder
        ):
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
    def _counted(self) -> Iterator[None]:
        """Count an encoding that runs, also of a page that has gone meanwhile."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    @contextmanager
    def _arrived(self, picture: Copy) -> Iterator[None]:
        """Wait until the pixels are there; those on a GPU are used on a stream of this
        page's own.
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
                self._stream.synchronize()  # before the memory is used again


def scaled_size(size: tuple[int, int], scale: float) -> tuple[int, int]:
    """Return width and height of a smaller picture; at least 1.

    Halves and the like are rounded up, so that whole pixels of the large picture make
    one of the small.
    """
    whole = round(1 / scale)
    if abs(whole * scale - 1) < 1e-6:
        return -(-size[0] // whole), -(-size[1] // whole)
    return max(round(size[0] * scale), 1), max(round(size[1] * scale), 1)


def _same(a: Copy, b: Copy) -> bool:
    """Return whether two pictures are the same.

    Different ones mostly differ within a few rows.
    """
    if a.size != b.size:
        return False
    if isinstance(a.pixels, np.ndarray) and isinstance(b.pixels, np.ndarray):
        rows = range(0, len(a.pixels), 64)
        return all(
            np.array_equal(
                a.pixels[k : k + 64].view(np.uint32),
                b.pixels[k : k + 64].view(np.uint32),
            )
            for k in rows
        )
    import torch

    assert isinstance(a.pixels, torch.Tensor)
    assert isinstance(b.pixels, torch.Tensor)
    return torch.equal(a.pixels.view(torch.int32), b.pixels.view(torch.int32))
