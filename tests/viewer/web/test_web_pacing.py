"""The size and number of pictures on lines of all kinds, in simulated time."""

from __future__ import annotations

import random

from splatview_viewer.web.sender import IN_FLIGHT, LEVELS, Level, Pacer

FULL = 600_000
"""Bytes of a picture at the best level."""


class Page:
    """A page behind a line of `rate` bytes and a round trip of `trip` seconds, drawing
    at most 60 pictures a second.
    """

    def __init__(self, rate: float, trip: float) -> None:
        self.rate = rate
        self.trip = trip
        self.pacer = Pacer()
        self.now = 0.0
        self._free = 0.0
        self._due = 0.0
        self._luck = random.Random(1)
        self._number = 0
        self._way: list[tuple[float, int, float, Level, float]] = []

    def run(self, seconds: float, stall: float = 0.0) -> tuple[list[Level], float]:
        """Return the levels of what was acknowledged meanwhile, and the longest time
        that a picture took. `stall`: the line does nothing for so long.
        """
        end = self.now + seconds
        seen = []
        latest = 0.0
        self._free = max(self._free, self.now + stall)
        while self.now < end:
            self.now += 0.001
            while self._way and self._way[0][0] <= self.now:
                at, number, sent, level, took = self._way.pop(0)
                self.pacer.acked(number, took, at)
                seen.append(level)
                latest = max(latest, at - sent)
            if self.pacer.in_flight < IN_FLIGHT and self.now >= self._due:
                level = self.pacer.level
                self._number = self._number + 1
                quality = {85: 1.0, 75: 0.8, 65: 0.7, 55: 0.6, 45: 0.55, 35: 0.5}[
                    level.quality
                ]
                size = int(
                    FULL * quality * level.scale**1.8 * self._luck.uniform(0.9, 1.1)
                )
                begin = max(self.now, self._free)
                decoding = self._luck.uniform(0, 0.012)
                self._free = begin + size / self.rate
                self.pacer.sent(self._number, size)
                self._way.append(
                    (
                        self._free + self.trip + decoding,
                        self._number,
                        self.now,
                        level,
                        self._free - begin + decoding,
                    )
                )
                self._due = self.now + 1 / 60
        return seen, latest


def sharp(seen: list[Level]) -> float:
    """The share of pictures in full resolution."""
    return sum(level.scale == 1.0 for level in seen) / len(seen)


def test_fast_line_has_full_quality_soon_and_one_stall_costs_little() -> None:
    page = Page(500e6, 0.004)
    assert page.pacer.level.scale <= 0.5, "the first picture is small"
    page.run(0.5)
    seen, _ = page.run(2)
    assert len(seen) > 110
    assert {*seen} == {LEVELS[0]}
    page.run(3, stall=0.5)
    assert sharp(page.run(3)[0]) == 1.0


def test_slow_lines_have_small_pictures_that_are_not_late() -> None:
    for rate, most in ((2.5e6, 0.2), (1e6, 0.25), (125e3, 0.9)):
        page = Page(rate, 0.03)
        page.run(3)
        seen, latest = page.run(10)
        assert latest < most and sharp(seen) < 0.1, rate
        assert not page.pacer.lossless_allowed(4_000_000)


def test_slow_line_is_noticed_and_recovers_and_a_distant_one_is_not_slow() -> None:
    page = Page(50e6, 0.02)
    assert sharp(page.run(8)[0][-60:]) == 1.0
    assert page.pacer.lossless_allowed(4_000_000)
    for rate, trip, pause, least, most in (
        (1e6, 0.02, 5, 0.0, 0.2),
        (50e6, 0.02, 12, 1.0, 1.0),
        (50e6, 0.2, 5, 1.0, 0.3),
    ):
        page.rate = rate
        page.trip = trip
        page.run(pause)
        seen, latest = page.run(5)
        assert sharp(seen) == least
        assert latest < most
