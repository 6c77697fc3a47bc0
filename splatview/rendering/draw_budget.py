"""The share of the time that pictures may take."""

from __future__ import annotations

import math

_FIRST_PAUSE_S = 1.0
"""The longest pause after the first picture, for which kernels and libraries are loaded:
it says nothing about the next ones."""


class DrawBudget:
    """Says when the next picture may be begun."""

    def __init__(self, share: float = 1.0) -> None:
        """Allow a picture at once.

        Args:
            share: of the time, over 0 and at most 1.
        """
        self.share = share
        self.next_at = -math.inf
        """When the next picture is allowed, in the clock's seconds."""
        self._pause_s = 0.0
        """From the last picture to the next one; 0 before the first one."""

    def account(self, drawn_at: float, picture_s: float) -> None:
        """Have the next picture wait until this one is within the share.

        The next one waits less where this one came late because script or viewer was not
        ready, or the share would not be used up. That is no more than a pause: before a
        longer one no viewer waited.

        Args:
            drawn_at: when the picture was begun.
            picture_s: seconds that it took.
        """
        pause_s = picture_s / self.share
        if not self._pause_s:
            pause_s = min(pause_s, _FIRST_PAUSE_S)
        late_s = drawn_at - self.next_at
        if not 0 < late_s <= min(pause_s, self._pause_s):
            late_s = 0.0
        self._pause_s = pause_s
        self.next_at = drawn_at - late_s + pause_s
