"""A frequency, measured from a counter that is polled."""

from __future__ import annotations

_PERIOD = 0.5
"""Least seconds between two rates."""
_LEAST = 0.02
"""Rates below this many per second count as 0."""


class Rate:
    """The frequency at which a counter grows, measured between two increments: one increment a second gives 1 Hz
    whatever the times of the polls.
    """

    def __init__(self) -> None:
        self.hz = 0.0
        """Increments per second; 0 while unknown."""
        self._count: int | None = None
        self._came = 0.0
        self._mark: tuple[float, int] | None = None

    def look(self, now: float, count: int) -> None:
        """Take in the counter's value at `now` (seconds)."""
        if count == self._count:
            if (
                self.hz and (silent := now - self._came) > 2 / self.hz
            ):  # rarer than it was, or over
                self.hz = 1 / silent if silent < 1 / _LEAST else 0.0
            return
        first = self._count is None
        self._count = count
        self._came = now
        if first:  # when the last of them came is not known
            return
        if self._mark is None:
            self._mark = now, count
        since, before = self._mark
        if now - since >= _PERIOD:
            self.hz = max(0.0, (count - before) / (now - since))
            self._mark = now, count
