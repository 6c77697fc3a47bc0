"""From pixels to a page: each newest picture is compared, encoded and sent."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from splatview_viewer.web.messages import Picture
from splatview_viewer.web.pacer import IN_FLIGHT, Pacer
from splatview_viewer.web.page_encoder import PageEncoder, encode_threads

if TYPE_CHECKING:
    from splatview_viewer.screens.draw_target import Copy
    from splatview_viewer.web.encoders import Encoder
    from splatview_viewer.web.pacer import Level
    from splatview_viewer.web.page_encoder import EncodedPicture
    from splatview_viewer.web.server import PageConnection

REST_S = 0.25
"""Seconds without another picture after which the last one is sent without loss."""


class Sender:
    """One page's pictures.

    The thread that draws calls `put` while the sender is `ready`; the page's connection
    takes messages out with `next`, in the web thread, and wakes the thread that draws
    when `ready` may have become true.
    """

    def __init__(self, connection: PageConnection, encoder: Encoder) -> None:
        self._connection = connection
        self._pacer = Pacer()
        self.encoder = PageEncoder(encoder, self._pacer)
        self._waiting: Copy | None = None
        self._encoding = False
        self._last_picture: Copy | None = None
        """The picture that the page shows, or will when it has drawn all."""
        self._rests_at = math.inf
        self._number = 0
        self._clear_count = 0
        """Calls of `clear`: a picture that was encoded meanwhile is not remembered."""
        connection.pictures = self

    # -- in the thread that draws ------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True if another picture may be drawn: also while one is being encoded."""
        if self._waiting is not None:
            return False
        return self._encoding + self._pacer.in_flight < IN_FLIGHT

    @property
    def level(self) -> Level:
        """The level of the next picture."""
        return self._pacer.level

    def put(self, picture: Copy) -> None:
        """Send a picture, if it is not what the page has."""
        if not self.encoder.closed:
            self._waiting = picture
            self._connection.wake_writer()

    def clear(self) -> None:
        """Forget all pictures: the next one is sent even if the page shows it already."""
        self._clear_count += 1
        self._waiting = None
        self._last_picture = None

    def close(self) -> None:
        """Take no picture from now on. Idempotent."""
        self.encoder.close()
        self.clear()

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
                encode_threads(), self.encoder.encode, picture, previous, level
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
            encode_threads(), self.encoder.encode, picture, None, None
        )
        is_replaced = self._waiting is not None or picture is not self._last_picture
        if encoded is None or is_replaced:
            return None
        self._rests_at = math.inf
        return self._message(picture, encoded, rests=True)

    def _message(
        self, picture: Copy, encoded: EncodedPicture, *, rests: bool = False
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
