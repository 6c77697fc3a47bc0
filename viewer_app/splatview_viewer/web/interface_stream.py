"""The interface's layer of one page: its newest drawing, of which the changes are sent."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.web.changes import changed_rects, encode_part
from splatview_viewer.web.messages import InterfaceUpdate
from splatview_viewer.web.pacing import IN_FLIGHT

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.screens.draw_target import Copy


class _DrawnInterface(NamedTuple):
    picture: Copy
    layout: int


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Return the thread that encodes the interfaces of all pages.

    It is another one than those for pictures, which take longer.
    """
    return ThreadPoolExecutor(1, "encode_interface")


class InterfaceStream:
    """Sends each page what changed in its interface, without loss.

    `put` and `clear` are called by the thread that draws, the rest by the web thread.
    """

    def __init__(self, with_pixels: Callable[..., object]) -> None:
        """Make a stream for one page.

        `with_pixels(picture)` is a context within which its pixels can be read.
        """
        self._with_pixels = with_pixels
        self._waiting: _DrawnInterface | None = None
        self._sent: _DrawnInterface | None = None
        """What the page shows once all updates have arrived."""
        self._sent_count = 0
        self._acked = 0
        self._is_encoding = False
        self._clear_count = 0

    @property
    def ready(self) -> bool:
        """True if another drawing may come."""
        if self._waiting is not None:
            return False
        return self._is_encoding + self._sent_count - self._acked < IN_FLIGHT

    @property
    def has_waiting(self) -> bool:
        """True while a drawing waits that may be sent."""
        return self._waiting is not None and self._sent_count - self._acked < IN_FLIGHT

    def put(self, picture: Copy, layout: int) -> None:
        """Send a drawing, as far as the page does not show it."""
        self._waiting = _DrawnInterface(picture, layout)

    def clear(self) -> None:
        """Forget what the page shows: the next drawing is sent as a whole."""
        self._clear_count += 1
        self._waiting = None
        self._sent = None

    def acked(self, update_number: int) -> None:
        """Note that an update and all before it are on the page."""
        self._acked = min(max(self._acked, update_number), self._sent_count)

    async def next(self) -> tuple[InterfaceUpdate, bytes] | None:
        """Return the next update to send, and its files; None where nothing changed.

        Raises:
            ViewerError: it cannot be encoded.
        """
        clear_count = self._clear_count
        drawn = self._waiting
        if drawn is None:
            return None
        previous = self._sent
        self._is_encoding = True
        self._waiting = None
        try:
            loop = asyncio.get_running_loop()
            message, data = await loop.run_in_executor(
                _threads(), self._encode, drawn, previous
            )
        finally:
            self._is_encoding = False
        is_same = previous is not None and previous.layout == drawn.layout
        self._sent = drawn
        if clear_count != self._clear_count:
            self._sent = None
        if is_same and not message.boxes:
            return None
        self._sent_count += 1
        return message, data

    def _encode(
        self, drawn: _DrawnInterface, previous: _DrawnInterface | None
    ) -> tuple[InterfaceUpdate, bytes]:
        """Encode what changed, in a worker."""
        picture = drawn.picture
        with self._with_pixels(picture):  # type: ignore[attr-defined]
            previous_picture = previous.picture if previous else None
            rects = changed_rects(picture, previous_picture)
            files = [encode_part(picture, rect) for rect in rects]
        message = InterfaceUpdate(
            number=self._sent_count + 1,
            layout=drawn.layout,
            boxes=[(r.x, r.y, r.width, r.height) for r in rects],
            sizes=[len(file) for file in files],
            at=picture.at,
        )
        return message, b"".join(files)
