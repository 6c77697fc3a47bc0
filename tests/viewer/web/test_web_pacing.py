"""The size and number of pictures on lines of all kinds, in simulated time."""

from __future__ import annotations

import itertools
import random

from splatview_viewer.web.sender import IN_FLIGHT, LEVELS, Level, Pacer

FULL = 600_000
"""Bytes of a picture at the best level."""


class Page:
    """A page behind a line of `rate` bytes and a round trip of `trip` seconds, drawing at most 60 pictures a second."""

    def __init__(self, rate: float, trip: float) -> None:
        self.rate, self.trip = rate, trip
        self.pacer = Pacer()
        self.now = 0.0
        self._free = self._due = 0.0
        self._luck = random.Random(1)
        self._way: list[tuple[float, int, float, Level, float]] = []
        self._numbers = itertools.count(1)

    def run(self, seconds: float, stall: float = 0.0) -> list[tuple[float, Level]]:
        """Return seconds and level of what was acknowledged meanwhile. `stall`: the line does nothing for so long."""
        end, seen = self.now + seconds, []
        self._free = max(self._free, self.now + stall)
        while self.now < end:
            self.now += 0.001
            while self._way and self._way[0][0] <= self.now:
                at, number, sent, level, took = self._way.pop(0)
                self.pacer.acked(number, took, at)
                seen.append((at - sent, level))
            if self.pacer.in_flight < IN_FLIGHT and self.now >= self._due:
                self._send()
        return seen

    def _send(self) -> None:
        level, number = self.pacer.level, next(self._numbers)
        quality = {85: 1.0, 75: 0.8, 65: 0.7, 55: 0.6, 45: 0.55, 35: 0.5}[level.quality]
        size = int(FULL * quality * level.scale**1.8 * self._luck.uniform(0.9, 1.1))
        begin = max(self.now, self._free)
        self._free = begin + size / self.rate
        self.pacer.sent(number, size)
        decoding = self._luck.uniform(0, 0.012)
        self._way.append((self._free + self.trip + decoding, number, self.now, level, self._free - begin + decoding))
        self._way.sort()
        self._due = self.now + 1 / 60


def worst(seen: list[tuple[float, Level]]) -> float:
    return max(took for took, _ in seen)


def sharp(seen: list[tuple[float, Level]]) -> float:
    """The share of pictures in full resolution."""
    return sum(level.scale == 1.0 for _, level in seen) / len(seen)


def test_fast_line_has_full_quality_soon_and_one_stall_costs_little() -> None:
    page = Page(500e6, 0.004)
    assert page.pacer.level.scale <= 0.5, "the first picture is small"
    page.run(0.5)
    seen = page.run(2)
    assert len(seen) > 110 and {level for _, level in seen} == {LEVELS[0]}
    page.run(3, stall=0.5)
    assert sharp(page.run(3)) == 1.0


def test_slow_lines_have_small_pictures_that_are_not_late() -> None:
    for rate, latest in ((2.5e6, 0.2), (1e6, 0.25), (125e3, 0.9)):
        page = Page(rate, 0.03)
        page.run(3)
        seen = page.run(10)
        assert worst(seen) < latest and sharp(seen) < 0.1, rate
        assert not page.pacer.lossless_allowed(4_000_000)


def test_line_that_becomes_slow_is_noticed_and_recovers_and_a_long_way_is_none() -> None:
    page = Page(50e6, 0.02)
    assert sharp(page.run(8)[-60:]) == 1.0 and page.pacer.lossless_allowed(4_000_000)
    page.rate = 1e6
    page.run(5)
    seen = page.run(5)
    assert worst(seen) < 0.2 and sharp(seen) == 0.0
    page.rate = 50e6
    page.run(12)
    assert sharp(page.run(2)) == 1.0
    page.trip = 0.2
    page.run(5)
    seen = page.run(10)
    assert sharp(seen) == 1.0 and worst(seen) < 0.3
