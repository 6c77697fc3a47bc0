"""The interface that stays as it is for a moment while nothing but pictures changes.

Where the interface lies in the framebuffer of the pictures, each picture needs it anew.
A new version of a stream is seen sooner if what imgui drew last is rendered over it
once more: drawing the interface takes longer than most pictures. While versions come
fast it is drawn between two pictures, a moment after the last one with them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.shell.user import User

KEPT_S = 0.05
"""Seconds after a picture from which on the interface tells of that picture."""
_OLD_S = 0.04
"""Seconds from which on an interface is drawn anew between two pictures."""


class _Ground(NamedTuple):
    """A picture of one pane, as the interface over it depends on it."""

    rect: Rect
    view: ShownView
    camera: Any


class KeptInterface:
    """Decides when a picture is shown with the interface of the last one."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._grounds: list[_Ground] | None = None
        """What the last interface was drawn for; None: for one picture alone."""
        self._drawn_at = -math.inf
        self._suited_at = -math.inf
        """When the last interface suited other pictures."""
        self._is_fast = False
        """Two such pictures came soon after each other."""

    def note_drawing(self, now: float) -> None:
        """Note that the interface was drawn, and what for."""
        self._drawn_at = now
        self._grounds = self._present_grounds()

    def drop(self) -> None:
        """Have the next picture be shown with an interface of its own."""
        self._grounds = None

    def stays(self, now: float) -> bool:
        """Return whether the pictures drawn now are shown with the last interface.

        Those of a slow stream are not: they would be drawn twice, the second time with
        an interface of their own.
        """
        if not self._can_stay():
            return False
        self._is_fast = now - self._suited_at < KEPT_S
        self._suited_at = now
        return self._is_fast

    def is_due(self, now: float) -> bool:
        """Return whether to draw an interface for the next pictures, after those of now.

        It is not drawn where the next ones may come so late that they have one of their
        own.
        """
        if self._suited_at != now or not self._is_fast or self._user.dirty:
            return False
        return now - self._drawn_at >= _OLD_S

    def _can_stay(self) -> bool:
        """Return whether the last interface suits the present pictures."""
        user = self._user
        if self._grounds is None or not user.schedule.kept_boards.may_stay:
            return False
        screen = user.screen
        surface = user.interface.surface
        state = screen.state
        if not surface.can_render_again(state.size, state.scale):
            return False
        return self._grounds == self._present_grounds()

    def _present_grounds(self) -> list[_Ground] | None:
        """Return what an interface would be drawn for now; None: for one picture alone.

        A view may write about its picture, the value under the pointer is one of the
        picture, and textures that a phone's cards refer to may be gone.
        """
        user = self._user
        if user.interface.has_readout or user.interface.state.visits:
            return None
        grounds = []
        for viewport in user.layout.visible_viewports:
            working = viewport.working()
            if working is None or working.view.empty:
                return None
            if working.view.view.writes_about_picture():
                return None
            camera = working.view.view.drawn_camera
            grounds.append(_Ground(viewport.rect, working.view, camera))
        return grounds
