"""The drawings that are due on one user's screen, and when each may be made."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from splatview_viewer.shell.kept_boards import KeptBoards
from splatview_viewer.workspace.catalogue import SETTLE

if TYPE_CHECKING:
    from splatview_viewer.shell.user import User

TOGETHER = 0.1
"""Seconds that an interface waits for pictures that it changes with."""
_SLOW_S = 0.05
"""Seconds of drawing pictures from which on they are slow."""
_USED_FOR = 0.25
"""Seconds after an input for which the interface is being used."""
_LONGEST_WAIT = 1.0
"""Seconds that slow pictures wait for that at most."""


class Schedule:
    """Counts what is to be drawn of an interface and of its pictures."""

    def __init__(self, user: User) -> None:
        self._user = user
        self.dirty = SETTLE
        """Pictures that have to be drawn, with the interface over them."""
        self.pictures_dirty = SETTLE
        """The same of the panes' pictures alone, where the interface is drawn apart."""
        self.marks = 0
        """Calls that asked for pictures."""
        self.kept_boards = KeptBoards()
        self.pictures_answer = False
        """The next pictures show what the user did, not the interface alone."""
        self.interface_answers = True
        """What the user did last is seen in the interface, whatever pictures show."""
        self._interface_first = False
        """The interface waits for no pictures: something changed in it alone."""
        self.pictures_s = 0.0
        """Seconds that drawing the last pictures took in this thread."""
        self._pictures_at = -math.inf
        """When they were drawn."""
        self.input_at = -math.inf
        """When the user did something in the interface."""

    # -- what is to be drawn -----------------------------------------------------------

    def mark(self, pictures: int = 1) -> None:
        """Draw at least so many pictures."""
        self.kept_boards.renew(pictures)
        self.mark_pictures(pictures)

    def mark_pictures(self, pictures: int = 1) -> None:
        """Draw at least so many; the boards of the interface may stay for a moment."""
        self.dirty = max(self.dirty, pictures)
        self.pictures_dirty = max(self.pictures_dirty, pictures)
        self.marks += 1

    def refresh_interface(self) -> None:
        """Draw the interface once, as what it tells of pictures is old."""
        self.kept_boards.end()
        self.dirty = max(self.dirty, 1)
        self._interface_first = True

    def mark_interface(self, times: int = 1) -> None:
        """Draw the interface so often at least; pictures only where it lies in them."""
        self.kept_boards.renew(times)
        self.dirty = max(self.dirty, times)
        self._interface_first = True

    def await_pictures(self) -> None:
        """Note that the user waits for the next pictures."""
        self.pictures_answer = True
        self.interface_answers = False

    def draw_interface(self, now: float) -> None:
        """Count an interface that is about to be drawn apart."""
        self.dirty -= 1
        self._interface_first = False
        self._user.pace.draw_interface(now)

    def draw_both(self) -> None:
        """Count pictures that are about to be drawn with the interface over them."""
        self.dirty -= 1
        self.pictures_dirty = self.dirty

    def draw_pictures(self, now: float) -> None:
        """Count pictures that are about to be drawn apart."""
        self.pictures_dirty -= 1
        self._pictures_at = now

    # -- when it may be ----------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """True while there is something to draw, and the screen would take it."""
        return self.interface_waits or self.pictures_wait

    @property
    def interface_waits(self) -> bool:
        """True while there is an interface to draw; with pictures, if it is no layer."""
        state = self._user.screen.state
        return self.dirty > 0 and state.visible and state.ready

    @property
    def pictures_wait(self) -> bool:
        """True while there are pictures to draw that are a layer of their own."""
        layer = self._user.screen.interface
        if layer is None or not self.pictures_dirty or not layer.takes_pictures:
            return False
        return not all(
            viewport.is_pending for viewport in self._user.layout.visible_viewports
        )

    def next_drawing(self, now: float) -> float:
        """Return the time at which what waits may be drawn; inf for nothing."""
        if self._user.screen.interface is None:
            return self._user.pace.next(now)
        times = []
        if self.interface_waits:
            times.append(self.next_interface(now))
        if self.pictures_wait:
            times.append(self.next_pictures(now))
        return min(times, default=math.inf)

    def next_pictures(self, now: float) -> float:
        """Return the time of the next pictures that are drawn apart, at the earliest.

        Slow ones that the user does not wait for leave time to use the interface.
        """
        earliest = self._user.pace.next(now)
        if self.pictures_answer or self.pictures_s < _SLOW_S:
            return earliest
        wanted_at = min(self.input_at + _USED_FOR, self._pictures_at + _LONGEST_WAIT)
        return max(earliest, wanted_at)

    def next_interface(self, now: float) -> float:
        """Return the time of the next interface that is drawn apart, at the earliest.

        One that changes with the pictures is drawn with them, if they come soon.
        """
        pace = self._user.pace
        if self._interface_first:
            return pace.next_interface
        earliest = pace.next_interface
        if self.kept_boards.may_stay:
            if self._user.draws_aside:
                return pace.next_aside
            earliest = pace.next_following
        if not self.pictures_dirty:
            return earliest
        pictures_at = math.inf
        if self.pictures_wait:
            pictures_at = self.next_pictures(now)
        return max(earliest, min(pictures_at, pace.drawn_at + TOGETHER))
