"""When the next picture may go to a page, and how large it may be. Plain arithmetic: no network, no clock of its own.

The way to a page is one line: a picture waits until the line is free, then takes the round trip and a time for each
byte (the network, or a phone that decodes). Both are exponentially weighted averages over acknowledged pictures. When a
picture takes more than BAD seconds of the line, the next ones shrink, to half the bytes at most; otherwise they grow
step by step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

IN_FLIGHT = 2
"""Pictures on their way at most."""


class Level(NamedTuple):
    quality: int
    """Of the JPEG, 1 to 100."""
    scale: float
    """Width and height over those of the framebuffer."""


LEVELS = (
    Level(85, 1.0), Level(75, 1.0), Level(65, 1.0), Level(55, 1.0), Level(65, 0.75), Level(55, 0.75), Level(45, 0.75),
    Level(55, 0.5), Level(45, 0.5), Level(35, 0.5), Level(45, 1 / 3), Level(35, 1 / 3), Level(35, 0.25),
)
"""What a picture that moves can be, from the best on."""
RESTING = 95
"""The quality of a picture that rests where one without loss is too large."""
GOOD, BAD = 0.040, 0.056
"""Seconds of the line that a picture may take to grow, and from which it shrinks."""
LOSSLESS = 1.0
"""Seconds of the line that a picture without loss may take."""
_FIRST = 10
"""The level until a picture was acknowledged."""
_PATIENCE, _MOST_PATIENCE = 0.3, 10.0
"""Seconds from a change to a step up; doubled each time that the step turned out wrong."""
_TOO_SOON = 3.0
"""A fall within so many seconds after a rise means that the rise was wrong."""
_LEAST_WEIGHT, _MOST_WEIGHT = 0.15, 0.5
"""Of one picture in the averages: the seconds that it took, within these bounds, so that slow ones count at once."""
_SPREAD = 0.2
"""Sizes that differ by this part of their mean tell the round trip from the time for bytes."""
_BYTES = {85: 1.0, 75: 0.85, 65: 0.77, 55: 0.71, 45: 0.65, 35: 0.58}
"""Bytes of a picture in these qualities, roughly, over those at 85."""


@dataclass
class _Sent:
    number: int
    size: int
    at: float
    measured: bool = True


class Pacer:
    """Flow control for one page. Numbers of pictures rise; `now` is in seconds by any clock that does not go back."""

    def __init__(self) -> None:
        self._sent: list[_Sent] = []
        self._acked_at = -math.inf
        self._line = _Line()
        self._full = 0.0
        """Bytes of a picture like those now, at the best level; 0 before the first."""
        self._level = _FIRST
        self._changed_at = self._rose_at = -math.inf
        self._patience = _PATIENCE

    @property
    def level(self) -> Level:
        """What the next picture should be."""
        return LEVELS[self._level]

    @property
    def known(self) -> bool:
        """Whether a picture was acknowledged; until then `level` is a guess."""
        return self._line.known

    @property
    def in_flight(self) -> int:
        """Pictures that were sent and do not stand on the page yet."""
        return len(self._sent)

    @property
    def waiting_since(self) -> float | None:
        """When the oldest picture was sent that is not acknowledged; None: all are."""
        return self._sent[0].at if self._sent else None

    def lossless_allowed(self, size_bytes: int) -> bool:
        """Whether a picture that rests may be so large."""
        return size_bytes * self._line.per_byte <= LOSSLESS

    def sent(self, number: int, size_bytes: int, now: float, level: Level | None = None) -> None:
        """A picture was handed to the network. `level`: how it was encoded; None for one that rests."""
        self._sent.append(_Sent(number, size_bytes, now))
        if level is not None:
            full = size_bytes / _share(level)
            self._full = full if not self._full else self._full + 0.4 * (full - self._full)

    def acked(self, number: int, now: float) -> None:
        """Picture `number` stands on the page, or was passed over there, and all before it as well."""
        reached = [s for s in self._sent if s.number <= number]
        if not reached:
            return
        self._sent = [s for s in self._sent if s.number > number]
        last = reached[-1]
        if last.measured and last.number == number:
            begin = max(last.at, min(self._acked_at - self._line.round_trip, now))
            self._line.took(max(last.size, 1), now - begin)
            self._choose(now)
        self._acked_at = now

    def pause(self) -> None:
        """The page is not seen for a while: what is on its way will be late, which says nothing about the line."""
        for s in self._sent:
            s.measured = False

    def _choose(self, now: float) -> None:
        takes = [self._full * _share(level) * self._line.per_byte for level in LEVELS]
        level = self._level
        if takes[level] > BAD:
            half = _share(LEVELS[level]) / 2
            self._level = next((k for k in range(level + 1, len(LEVELS)) if takes[k] <= GOOD
                                or _share(LEVELS[k]) <= half), len(LEVELS) - 1)
            if now - self._rose_at < _TOO_SOON:
                self._patience = min(self._patience * 2, _MOST_PATIENCE)
        elif takes[level] <= GOOD and level > 0 and now - self._changed_at >= self._patience:
            if now - self._rose_at > 2 * _TOO_SOON:
                self._patience = max(self._patience / 2, _PATIENCE)
            best = next(k for k, seconds in enumerate(takes) if seconds <= GOOD)
            self._level -= max(1, (level - best) // 2)
            self._rose_at = now
        if self._level != level:
            self._changed_at = now


def _share(level: Level) -> float:
    """Bytes of a picture over those at the best level."""
    return _BYTES[level.quality] * level.scale**1.7


class _Line:
    """Averages of size and seconds of pictures, and what follows: seconds = round_trip + per_byte * size.

    Pictures of different sizes tell the two apart. While all have one size the round trip is kept, so that a change
    counts for the bytes: the next pictures shrink, and their sizes differ.
    """

    def __init__(self) -> None:
        self.round_trip, self.per_byte = 0.03, 1e-7
        self.known = False
        self._size = self._seconds = self._variance = self._covariance = 0.0

    def took(self, size: float, seconds: float) -> None:
        """A picture of `size` bytes took so long."""
        if not self.known:
            self.known, self._size, self._seconds = True, size, seconds
        weight = min(max(seconds, _LEAST_WEIGHT), _MOST_WEIGHT)
        seconds = min(seconds, 4 * (self.round_trip + self.per_byte * size) + 0.05)  # a single one may be an accident
        larger, longer = size - self._size, seconds - self._seconds
        self._size += weight * larger
        self._seconds += weight * longer
        self._variance = (1 - weight) * (self._variance + weight * larger * larger)
        self._covariance = (1 - weight) * (self._covariance + weight * larger * longer)
        slope = self._covariance / self._variance if self._variance else 0.0
        told = self._variance / (self._variance + (_SPREAD * self._size) ** 2)
        base = self._seconds - min(max(slope, 0.0), self._seconds / self._size) * self._size
        self.round_trip += told * (base - self.round_trip)
        self.round_trip = min(self.round_trip, self._seconds)
        self.per_byte = max((self._seconds - self.round_trip) / self._size, 1e-10)
