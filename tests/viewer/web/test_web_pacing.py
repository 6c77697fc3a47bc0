"""The size and number of pictures on lines of all kinds, in simulated time."""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

from splatview_viewer.web.pacing import IN_FLIGHT, LEVELS, Level, Pacer

FULL = 600_000
"""Bytes of a picture at the best level."""
SHARES = {85: 1.0, 75: 0.8, 65: 0.7, 55: 0.6, 45: 0.55, 35: 0.5}
"""Bytes of a picture by its quality, beside those at the best one."""


class SentPicture(NamedTuple):
    """A picture on its way; all times are in seconds."""

    acknowledged_at: float
    picture_id: int
    sent_at: float
    level: Level
    duration: float
    """From its first byte on the line to its last, as the page sees it."""


class Page:
    """A page at the end of a line, which draws at most 60 pictures a second.

    The line carries `rate` bytes a second, with a round trip of `trip` seconds.
    """

    def __init__(self, rate: float, trip: float, *, busy: bool = False) -> None:
        """Make a page; `busy`: others have the processors of page and viewer."""
        self.rate = rate
        self.trip = trip
        self._busy = busy
        self.pacer = Pacer()
        self.now = 0.0
        self._free = 0.0
        self._due = 0.0
        self._luck = random.Random(1)
        self._sent_count = 0
        self._in_flight: deque[SentPicture] = deque()

    def run(self, seconds: float, stall: float = 0.0) -> tuple[list[Level], float]:
        """Let time pass; `stall` is how long the line does nothing.

        Returns:
            The levels of the pictures that were acknowledged meanwhile, and the longest
            time from a picture's sending to its acknowledgement.
        """
        end = self.now + seconds
        levels = []
        latency = 0.0
        self._free = max(self._free, self.now + stall)
        while self.now < end:
            self.now += 0.001
            while self._in_flight and self._in_flight[0].acknowledged_at <= self.now:
                picture = self._in_flight.popleft()
                self.pacer.acked(
                    picture.picture_id, picture.duration, picture.acknowledged_at
                )
                levels.append(picture.level)
                latency = max(latency, picture.acknowledged_at - picture.sent_at)
            if self.pacer.in_flight < IN_FLIGHT and self.now >= self._due:
                self._send()
        return levels, latency

    def _send(self) -> None:
        """Send a picture of the pacer's level."""
        level = self.pacer.level
        self._sent_count += 1
        luck = self._luck.uniform(0.9, 1.1)
        size = int(FULL * SHARES[level.quality] * level.scale**1.8 * luck)
        start = max(self.now, self._free)
        decoding = self._luck.uniform(0, 0.012)
        self._free = start + size / self.rate
        duration = self._free - start
        self._due = self.now + 1 / 60
        if self._busy:
            decoding = self._luck.uniform(0.05, 0.8)
            # The next picture waits for a thread that encodes it.
            self._due = self.now + self._luck.uniform(0.05, 0.5)
            # Now and then the first bytes are seen, and the rest only later.
            if self._luck.random() < 0.2:
                duration += self._luck.uniform(0.05, 0.4)
        self.pacer.sent(self._sent_count, size)
        picture = SentPicture(
            acknowledged_at=self._free + self.trip + decoding,
            picture_id=self._sent_count,
            sent_at=self.now,
            level=level,
            duration=duration,
        )
        self._in_flight.append(picture)


def share_of_full_size(levels: list[Level]) -> float:
    """Return the share of pictures in full resolution."""
    return sum(level.scale == 1.0 for level in levels) / len(levels)


def test_fast_line_has_full_quality_soon_and_one_stall_costs_little() -> None:
    page = Page(500e6, 0.004)
    assert page.pacer.level.scale <= 0.5, "the first picture is small"
    page.run(0.5)
    levels, _ = page.run(2)
    assert len(levels) > 110
    assert {*levels} == {LEVELS[0]}
    page.run(3, stall=0.5)
    assert share_of_full_size(page.run(3)[0]) == 1.0


def test_slow_lines_have_small_pictures_that_are_not_late() -> None:
    for rate, max_latency in ((2.5e6, 0.2), (1e6, 0.25), (125e3, 0.9)):
        page = Page(rate, 0.03)
        page.run(3)
        levels, latency = page.run(10)
        assert latency < max_latency, rate
        assert share_of_full_size(levels) < 0.1, rate
        assert not page.pacer.lossless_allowed(4_000_000)


def test_slow_line_is_noticed_and_recovers_and_a_distant_one_is_not_slow() -> None:
    page = Page(50e6, 0.02)
    assert share_of_full_size(page.run(8)[0][-60:]) == 1.0
    assert page.pacer.lossless_allowed(4_000_000)
    for rate, trip, pause, share, max_latency in (
        (1e6, 0.02, 5, 0.0, 0.2),
        (50e6, 0.02, 12, 1.0, 1.0),
        (50e6, 0.2, 5, 1.0, 0.3),
    ):
        page.rate = rate
        page.trip = trip
        page.run(pause)
        levels, latency = page.run(5)
        assert share_of_full_size(levels) == share
        assert latency < max_latency


def test_one_slow_answer_does_not_make_a_line_slow() -> None:
    """A page is busy while it opens: its first picture is small, and takes long."""
    pacer = Pacer()
    pacer.sent(1, 5_000)
    pacer.acked(1, 0.4, 1.0)
    assert not pacer.lossless_allowed(900_000)
    pacer.sent(2, 300_000, moves=False)
    pacer.acked(2, 0.01, 2.0)
    assert pacer.lossless_allowed(900_000)
    assert not pacer.is_sure
    # Of what is small, nothing is concluded for what is large.
    pacer = Pacer()
    for picture_number in range(1, 9, 2):
        pacer.sent(picture_number, 500)
        pacer.acked(picture_number, 0.0, 1.0)
        pacer.sent(picture_number + 1, 300_000, moves=False)
        pacer.acked(picture_number + 1, 3.0, 2.0)
    assert not pacer.lossless_allowed(900_000)
    assert pacer.is_sure


def test_busy_processor_is_not_taken_for_a_slow_line() -> None:
    page = Page(500e6, 0.004, busy=True)
    page.run(3)
    levels, _ = page.run(60)
    assert len(levels) > 60
    assert share_of_full_size(levels) > 0.98
    assert page.pacer.lossless_allowed(4_000_000)
    page.rate = 0.5e6
    page.run(10)
    levels, _ = page.run(20)
    assert share_of_full_size(levels) < 0.1, "a slow line is noticed all the same"
