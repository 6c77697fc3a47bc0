"""From pixels to a page: what changed in its interface, then its newest picture.

The interface is sent without loss, and before pictures: also between the parts of one
that is on its way. Pictures are encoded at the level of the pacer, and without loss once
they rest.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from statistics import median
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.web.encoders import TurboEncoder, encode_lossless
from splatview_viewer.web.interface_stream import InterfaceStream
from splatview_viewer.web.messages import (
    Ack,
    PageLayout,
    PaneBox,
    Picture,
    ServerMessage,
    Taken,
)
from splatview_viewer.web.pacing import (
    IN_FLIGHT,
    REST_S,
    RESTING,
    RETRY_S,
    Level,
    Pacer,
)
from splatview_viewer.web.scene_sender import SceneSender

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from splatview_viewer.core.screen import Pane, Rect
    from splatview_viewer.screens.draw_target import Copy
    from splatview_viewer.web.connection import PageConnection
    from splatview_viewer.web.encoders import Encoder

log = logging.getLogger("splatview")

_COMPARED_ROWS = 64
_PART_BYTES = 48 * 1024
"""Bytes of a picture between which an update of the interface may go."""
_LATENCIES = 9


class _Drawn(NamedTuple):
    """The pictures of all panes."""

    copy: Copy
    layout: int
    box: tuple[int, int, int, int]
    number: int


class _EncodedPicture(NamedTuple):
    data: bytes
    quality: int
    """100: without loss."""


@functools.cache
def encode_threads() -> ThreadPoolExecutor:
    """Return the threads that encode pictures for all pages.

    One core is left to the thread that draws.
    """
    return ThreadPoolExecutor(2, "encode")


class Sender:
    """One page's interface and pictures.

    The thread that draws calls `put_interface` while the sender is `ready`, and `put`
    while it `takes_pictures`; the page's connection takes messages out with `next`, in
    the web thread, and wakes the thread that draws when these may have become true.
    """

    def __init__(self, connection: PageConnection, encoder: Encoder) -> None:
        self._connection = connection
        self._encoder = encoder
        self._pacer = Pacer()
        self._interface = InterfaceStream(self._pixels_of)
        self._layout = PageLayout(0, (0, 0), [])
        """The layout of what was put last."""
        self._waiting: _Drawn | None = None
        self._encoding = False
        self._last_picture: _Drawn | None = None
        """The picture that the page shows, or will when it has drawn all."""
        self._queued: deque[tuple[ServerMessage | bytes, ...]] = deque()
        """What is left to send of a picture."""
        self._queued_number = 0
        """The number of that picture."""
        self._fault: BaseException | None = None
        """Why a picture could not be encoded."""
        self._rests_at = math.inf
        self._refused_bytes = 0
        """Bytes without loss of the picture that rests, where the line seemed too slow
        for them; 0: it did not."""
        self._sent_count = 0
        self.put_number = 0
        """The number of the picture that was put last."""
        self.sent_number = 0
        """The number of the last one that the page has been sent, or has already."""
        self._stream: Any = None
        self._latencies: deque[float] = deque(maxlen=_LATENCIES)
        """Milliseconds from the last events until they were seen."""
        self._clear_count = 0
        """Calls of `clear`: a picture that was encoded meanwhile is not remembered."""
        self._closed = False
        self._lock = Lock()
        self._running = 0
        """Number of encodings that run now."""
        self.scenes = SceneSender(connection.wake_writer, connection.wake)
        """Sends the scenes that the page draws by itself."""
        connection.pictures = self

    # -- in the thread that draws ------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True if another drawing of the interface may come."""
        return self._interface.ready

    @property
    def takes_pictures(self) -> bool:
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

    @property
    def latency_ms(self) -> float | None:
        """The usual time from one of the last events until it was seen; None: unknown."""
        latencies = list(self._latencies)
        if latencies:
            return median(latencies)
        return None

    def put_interface(
        self, drawing: Copy, size: tuple[int, int], panes: Sequence[Pane]
    ) -> None:
        """Send a drawing of the interface, as far as the page does not have it."""
        if not self._closed:
            self._interface.put(drawing, self._layout_of(size, panes))
            self._connection.wake_writer()

    def put(
        self, picture: Copy, size: tuple[int, int], panes: Sequence[Pane], area: Rect
    ) -> None:
        """Send the pictures of panes, which lie in `area`, if the page has others."""
        if not self._closed:
            box = area.x, area.y, area.width, area.height
            self.put_number += 1
            layout = self._layout_of(size, panes)
            self._waiting = _Drawn(picture, layout, box, self.put_number)
            self._connection.wake_writer()

    def _layout_of(self, size: tuple[int, int], panes: Sequence[Pane]) -> int:
        """Return the number of a layout, which the page is told when it is new."""
        boxes = [
            PaneBox(key, (rect.x, rect.y, rect.width, rect.height))
            for key, rect in panes
        ]
        if (size, boxes) != (self._layout.size, self._layout.panes):
            self._layout = PageLayout(self._layout.number + 1, size, boxes)
            self._connection.send(self._layout)
        return self._layout.number

    def clear(self) -> None:
        """Forget what the page shows: the next drawings are sent as a whole."""
        self._interface.clear()
        self.clear_pictures()

    def clear_pictures(self) -> None:
        """Forget what the page shows of pictures, and send none that waits."""
        self._clear_count += 1
        self._waiting = None
        self._last_picture = None

    def close(self) -> None:
        """Take no picture from now on. Idempotent."""
        self._closed = True
        self.clear()
        self._stream = None

    # -- in the web thread -------------------------------------------------------------

    def acked(self, ack: Ack | Taken, now: float) -> None:
        """Note that an update is on the page."""
        if isinstance(ack, Taken):
            self.scenes.note_taken(ack.number, now)
            return
        if ack.latency is not None:
            self._latencies.append(ack.latency)
        if ack.layer == "interface":
            self._interface.acked(ack.number)
        else:
            self._pacer.acked(ack.number, ack.took / 1000, now)
            if self._refused_bytes and self._pacer.lossless_allowed(
                self._refused_bytes
            ):
                self._rests_at = now
        self._connection.wake()

    async def next(self) -> tuple[ServerMessage | bytes, ...] | None:
        """Return what to send next; None while there is nothing.

        Raises:
            ViewerError: a drawing cannot be encoded.
        """
        if self._fault is not None:
            raise self._fault
        self._start_encoding()
        if self._interface.has_waiting:
            update = await self._interface.next()
            self._connection.wake()
            # Another drawing may wait since then.
            return update or ()
        # Parts of a picture and of blocks never come between each other's.
        if self.scenes.is_amid_blocks or not self._queued:
            return self.scenes.next(asyncio.get_running_loop().time())
        message = self._queued.popleft()
        if not self._queued:
            self._note_sent(self._queued_number)
        return message

    def end(self) -> None:
        """Give back what is held for the page: its connection has ended."""
        self.scenes.end()

    def _note_sent(self, number: int) -> None:
        """Note that the page has been sent a picture, and have the viewer know it."""
        self.sent_number = max(self.sent_number, number)
        self._connection.wake()

    def _start_encoding(self) -> None:
        """Have a picture encoded, if there is one and none is being encoded or sent."""
        if self._encoding or self._queued:
            return
        # This is read first, since the thread that draws may call `clear` at any time.
        clear_count = self._clear_count
        picture = self._waiting
        rests = picture is None
        if picture is None:
            picture = self._resting()
        if picture is None:
            return
        level = None
        previous = None
        if not rests:
            level = self._pacer.level
            previous = self._last_picture
            self._waiting = None
            self._refused_bytes = 0
            self._last_picture = picture
            if clear_count != self._clear_count:
                self._last_picture = None
        self._encoding = True
        loop = asyncio.get_running_loop()
        encoding = loop.run_in_executor(
            encode_threads(), self._encode, picture, previous, level
        )
        encoding.add_done_callback(partial(self._take, picture, rests))

    def _resting(self) -> _Drawn | None:
        """Return the picture to be sent without loss; None while none rests."""
        picture = self._last_picture
        if picture is None or self._pacer.in_flight:
            return None
        now = asyncio.get_running_loop().time()
        if now < self._rests_at:
            return None
        return picture

    def _take(
        self,
        picture: _Drawn,
        rests: bool,
        encoding: asyncio.Future[_EncodedPicture | None],
    ) -> None:
        """Take over an encoded picture."""
        self._encoding = False
        if encoding.cancelled():
            return
        self._fault = encoding.exception()
        if self._fault:
            encoded = None
        else:
            encoded = encoding.result()
        if encoded is None and not rests:
            self._note_sent(picture.number)
        is_replaced = self._waiting is not None or picture is not self._last_picture
        if encoded is not None and not (rests and is_replaced):
            self._rests_at = math.inf
            if not rests:
                self._rest_after(REST_S)
            elif self._refused_bytes and not self._pacer.is_sure:
                self._rest_after(RETRY_S)
            self._queue(picture, encoded, rests)
        self._connection.wake()
        self._connection.wake_writer()

    def _rest_after(self, seconds: float) -> None:
        """Send the last picture without loss, if the page has no other by then."""
        loop = asyncio.get_running_loop()
        self._rests_at = loop.time() + seconds
        loop.call_later(seconds + 0.01, self._connection.wake_writer)

    def _queue(self, picture: _Drawn, encoded: _EncodedPicture, rests: bool) -> None:
        """Give a picture its number, and queue its parts."""
        self._sent_count += 1
        self._queued_number = picture.number
        data = encoded.data
        self._pacer.sent(self._sent_count, len(data), moves=not rests)
        is_lossless = encoded.quality == 100
        image_format = "webp" if is_lossless else "jpeg"
        event_ms = 0.0 if rests else picture.copy.at
        message = Picture(
            number=self._sent_count,
            format=image_format,
            layout=picture.layout,
            box=picture.box,
            bytes=len(data),
            at=event_ms,
            quality=encoded.quality,
            lossless=is_lossless,
        )
        chunks = [
            data[start : start + _PART_BYTES]
            for start in range(0, len(data), _PART_BYTES)
        ]
        self._queued.append((message, chunks[0]))
        self._queued.extend((chunk,) for chunk in chunks[1:])

    # -- in a worker -------------------------------------------------------------------

    def _encode(
        self, drawn: _Drawn, previous: _Drawn | None, level: Level | None
    ) -> _EncodedPicture | None:
        """Encode a picture, unless it is the same as the previous one.

        Args:
            drawn: the picture with its pixels.
            previous: what the page shows; None to encode in any case.
            level: None for no loss, or hardly any where the line is too slow.

        Returns:
            The file; None for the same picture, and for a page that has gone.
        """
        if self._closed:
            return None
        picture = drawn.copy
        with self._count_encoding(), self._pixels_of(picture):
            if previous is not None and _is_same(drawn, previous):
                return None
            if level is None:
                data = encode_lossless(
                    picture.pixels, is_top_first=picture.is_top_first
                )
                if self._pacer.lossless_allowed(len(data)):
                    self._refused_bytes = 0
                    return _EncodedPicture(data, 100)
                self._refused_bytes = len(data)
                level = RESTING
            return _EncodedPicture(self._jpeg(picture, level), level.quality)

    def _jpeg(self, picture: Copy, level: Level) -> bytes:
        """Encode a picture as JPEG, on the CPU where the GPU cannot."""
        size = scaled_size(picture.size, level.scale)
        is_on_cpu = isinstance(picture.pixels, np.ndarray)
        if is_on_cpu and not isinstance(self._encoder, TurboEncoder):
            self._encoder = TurboEncoder("", self._encoder.device)
        try:
            return self._encode_jpeg(picture, level, size)
        except ViewerError as e:
            if isinstance(self._encoder, TurboEncoder):
                raise
            log.warning("pictures for a page are encoded on the CPU: %s", e)
            self._encoder = TurboEncoder(str(e), self._encoder.device)
            return self._encode_jpeg(picture, level, size)

    def _encode_jpeg(self, picture: Copy, level: Level, size: tuple[int, int]) -> bytes:
        return self._encoder.encode(
            picture.pixels,
            level.quality,
            size=size,
            is_top_first=picture.is_top_first,
        )

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
        return -(-width // divisor), -(-height // divisor)
    return max(round(width * scale), 1), max(round(height * scale), 1)


def _is_same(drawn: _Drawn, previous: _Drawn) -> bool:
    """Return True if two pictures of the same panes are the same."""
    if (drawn.layout, drawn.box) != (previous.layout, previous.box):
        return False
    a = drawn.copy
    b = previous.copy
    if a.pixels is b.pixels:
        return True
    if a.pixels.shape != b.pixels.shape:
        # OpenGL drew one of them, and CUDA the other.
        return False
    if isinstance(a.pixels, np.ndarray) and isinstance(b.pixels, np.ndarray):
        return _same_arrays(a.pixels, b.pixels)
    import torch

    assert isinstance(a.pixels, torch.Tensor)
    assert isinstance(b.pixels, torch.Tensor)
    return torch.equal(_words(a.pixels), _words(b.pixels))


def _words(pixels: torch.Tensor) -> torch.Tensor:
    """Return pixels as few numbers, which take a quarter of the time where they can."""
    import torch

    values = pixels.view(-1)
    if len(values) % 4:
        return values
    return values.view(torch.int32)


def _same_arrays(a: np.ndarray, b: np.ndarray) -> bool:
    """Return True if two arrays of pixels are the same.

    They are compared by blocks of rows: different pictures mostly differ within a few.
    """
    for row in range(0, len(a), _COMPARED_ROWS):
        block = slice(row, row + _COMPARED_ROWS)
        if not np.array_equal(a[block].view(np.uint32), b[block].view(np.uint32)):
            return False
    return True
