"""The cameras of pictures on their way to a user, for the lines that lie over them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from splatview_viewer.core.view import View

_MAX_UNSEEN = 16
"""Pictures on their way; of more the oldest is forgotten."""


class _Presented(NamedTuple):
    """A picture that was drawn of a view."""

    picture_number: int
    view: View[Any, Any]
    camera: Any


class SeenCameras:
    """Has each view draw lines with the camera of the picture that is seen.

    A picture arrives later than the interface that is drawn at the same time.
    """

    def __init__(self) -> None:
        self._unseen: deque[_Presented] = deque(maxlen=_MAX_UNSEEN)

    def note(self, picture_number: int, views: Iterable[View[Any, Any]]) -> None:
        """Note with what cameras the picture of a number was drawn."""
        for view in views:
            self._unseen.append(_Presented(picture_number, view, view.drawn_camera))

    def arrive(self, picture_number: int) -> bool:
        """Note that the picture of a number is seen; return whether lines move."""
        do_lines_move = False
        while self._unseen and self._unseen[0].picture_number <= picture_number:
            presented = self._unseen.popleft()
            view = presented.view
            do_lines_move |= view.has_lines and view.seen_camera != presented.camera
            view.seen_camera = presented.camera
        return do_lines_move
