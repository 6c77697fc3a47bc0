"""The news of a pane for a page: all but the passes of its scene."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.web.messages import HandedScene, MarkedScene, PanePhoto
from splatview_viewer.web.scene_marks import SceneMarks

if TYPE_CHECKING:
    from splatview_viewer.core.handed import HandedOn
    from splatview_viewer.web.messages import Side

    PaneMessage = HandedScene | MarkedScene | PanePhoto

CHUNK_BYTES = 48 * 1024
"""Bytes of a binary message, between which an update of the interface may go."""


def chunks_of(data: bytes) -> list[bytes]:
    """Return data in the binary messages in which it is sent."""
    starts = range(0, len(data), CHUNK_BYTES)
    return [data[start : start + CHUNK_BYTES] for start in starts]


class PaneSide(NamedTuple):
    """One of the two scenes that a pane may have."""

    pane: int
    side: Side = 0


class PaneNews:
    """Follows what a page knows of a pane. In the web thread."""

    def __init__(self, key: PaneSide) -> None:
        self.marks = SceneMarks()
        self._key = key
        self._last_message: HandedScene | None = None
        self._photo_number = 0
        """The number of the photograph that was sent last."""

    def next(self, handed: HandedOn) -> tuple[PaneMessage | bytes, ...] | None:
        """Return the next message, with the data that follow it; None for nothing.

        handed: what the view hands on.
        """
        message = HandedScene(
            pane=self._key.pane, drawing=handed.drawing, reason=handed.reason
        )
        if message != self._last_message and not self._key.side:
            self._last_message = message
            return (message,)
        if handed.drawing is None:
            return None
        photo = None if self._key.side else handed.photo
        if photo is not None and photo.number != self._photo_number:
            self._photo_number = photo.number
            size = len(photo.data)
            announced = PanePhoto(pane=self._key.pane, number=photo.number, bytes=size)
            return (announced, *chunks_of(photo.data))
        marks = self.marks.next(handed.marked)
        if marks is None:
            return None
        marked = MarkedScene(
            **self._key._asdict(), pass_number=marks.pass_number, marked=marks.marked
        )
        return (marked,)
