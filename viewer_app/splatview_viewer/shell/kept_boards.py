"""The boards of the interface that stay as they are for a moment while pictures move.

While a camera moves or new versions come, pictures are drawn sixty times a second. The
words beside them need not be: ten times a second is enough, and their boards keep what
was drawn in them meanwhile. Whatever a user does with the interface, and whatever
changes in it, is drawn at once.
"""

from __future__ import annotations

import math

_KEPT_S = 0.1
"""Seconds for which boards keep what was drawn in them."""
_WHOLE_FIRST = 3
"""Drawings after a change in the interface that are whole."""


class KeptBoards:
    """Counts the drawings of one interface, to find which may keep its boards."""

    def __init__(self) -> None:
        self._whole_left = _WHOLE_FIRST
        """Drawings that have to be whole."""
        self._whole_at = -math.inf
        """When the last whole one was."""

    def renew(self, times: int) -> None:
        """Have at least so many drawings be whole from now on."""
        self._whole_left = max(self._whole_left, times, _WHOLE_FIRST)

    def count_drawing(self, now: float) -> bool:
        """Count a drawing at `now`; return whether it may keep the boards."""
        if self._whole_left <= 0 and now < self._whole_at + _KEPT_S:
            return True
        self._whole_left = max(self._whole_left - 1, 0)
        self._whole_at = now
        return False

    def end(self) -> None:
        """Have the next drawing be whole: what the boards tell is old."""
        self._whole_left = max(self._whole_left, 1)

    @property
    def may_stay(self) -> bool:
        """True if nothing but pictures changed since the last drawing."""
        return self._whole_left <= 0

    @property
    def due(self) -> float:
        """The time from which on boards that were kept are old."""
        return self._whole_at + _KEPT_S
