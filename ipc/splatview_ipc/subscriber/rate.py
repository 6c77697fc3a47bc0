"""A frequency, measured from a counter that is polled."""

from __future__ import annotations

_MIN_PERIOD_S = 0.5
"""Shortest time between two measurements."""
_MIN_HZ = 0.02
"""Rates below this one count as 0."""


class Rate:
    """The frequency at which a counter grows, measured between two increments.

    One increment a second gives 1 Hz whatever the times of the polls.
    """

    def __init__(self) -> None:
        self.hz = 0.0
        """Increments per second; 0 while unknown."""
        self._count: int | None = None
        self._grew_at = 0.0
        self._reference_time: float | None = None
        """When the present measurement started; None if none did."""
        self._reference_count = 0

    def look(self, now: float, count: int) -> None:
        """Take in the counter's value at `now` (seconds)."""
        if count == self._count:
            if self.hz:
                self._lower(now)
            return
        is_first = self._count is None
        self._count = count
        self._grew_at = now
        if is_first:  # the time of its last increment is not known
            return
        if self._reference_time is None:
            self._reference_time = now
            self._reference_count = count
        seconds = now - self._reference_time
        if seconds >= _MIN_PERIOD_S:
            self.hz = max(0.0, (count - self._reference_count) / seconds)
            self._reference_time = now
            self._reference_count = count

    def _lower(self, now: float) -> None:
        """Lower the rate if increments have become rarer, or have ended."""
        silence_s = now - self._grew_at
        if silence_s > 2 / self.hz:
            self.hz = 1 / silence_s if silence_s < 1 / _MIN_HZ else 0.0
