"""Python's garbage collector, kept away from the pictures: it stops everything, for 10 to 100 ms beside torch."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

REST = 0.5
"""Seconds without a picture after which there is time for it."""
PERIOD = 5.0
"""Seconds between two collections at rest, at least."""
LATEST = 10.0
"""Seconds of uninterrupted drawing after which the youngest objects are looked at, which are few."""
_DEEPER, _DEEPEST = 6, 60
"""Every so many of those the next generation is looked at too, and all that is not frozen."""
_LOOK = 0.25
"""Seconds between looks at how many objects there are."""
_MANY, _STEADY = 20_000, 1_000
"""New objects that mean that something large was imported, and how few come once that is done."""


class Garbage:
    """Collects garbage when no picture is waited for. To be called in each turn of the loop.

    What lives at the beginning, and what large modules bring later, is frozen: no collection looks at it again, until
    the next such module comes.
    """

    def __init__(self) -> None:
        self._drawn_at = self._collected_at = self._look_at = 0.0
        self._before = 0
        self._times = 0

    @contextmanager
    def held_back(self, now: float) -> Iterator[None]:
        """Nothing is collected by itself inside. `now`: seconds by the clock that `turn` is told, too."""
        was = gc.isenabled()
        gc.disable()
        self._thoroughly()
        self._drawn_at = self._collected_at = self._look_at = now
        try:
            yield
        finally:
            gc.unfreeze()
            if was:
                gc.enable()

    def turn(self, now: float, drew: bool) -> None:
        """After a turn of the loop, at whose end nothing waits to be drawn or something just was."""
        if drew:
            self._drawn_at = now
        if now < self._look_at:
            return
        self._look_at = now + _LOOK
        young = gc.get_count()[0]
        grown, self._before = young - self._before, young
        if young > _MANY and grown < _STEADY:
            self._thoroughly()
        elif now - self._drawn_at >= REST:
            if now - self._collected_at < PERIOD or not young:
                return
            gc.collect()
        elif now - self._collected_at >= LATEST:
            self._times += 1
            gc.collect(2 if self._times % _DEEPEST == 0 else 1 if self._times % _DEEPER == 0 else 0)
        else:
            return
        self._collected_at, self._before = now, 0

    def _thoroughly(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
