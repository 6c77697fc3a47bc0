"""Flow control of a page: the time and the size of its next picture. Plain arithmetic: no network, no clock of its own.

A page tells how long each picture took from its first byte to its decoded image. While that is more than BAD seconds
on average, the pictures shrink to about half their bytes; below GOOD seconds they grow step by step: with each picture
until one was too slow, then after some patience.
"""

from __future__ import annotations

import math
from typing import NamedTuple

IN_FLIGHT = 2
"""Pictures on their way at most."""


class Level(NamedTuple):
    quality: int
    """Quality of the JPEG, 1 to 100."""
    scale: float
    """Width and height over those of the framebuffer."""


LEVELS = (
    Level(85, 1.0), Level(75, 1.0), Level(65, 1.0), Level(55, 1.0), Level(65, 0.75), Level(55, 0.75), Level(45, 0.75),
    Level(55, 0.5), Level(45, 0.5), Level(35, 0.5), Level(45, 1 / 3), Level(35, 1 / 3), Level(35, 0.25),
)
"""The levels of a picture that moves, from the best on. Three levels are about half the bytes."""
RESTING = Level(95, 1.0)
"""A picture that rests where one without loss is too large."""
GOOD, BAD = 0.036, 0.060
"""Seconds that a picture may take to grow, and from which it shrinks. A level up is less than BAD / GOOD more bytes."""
LOSSLESS = 1.0
"""Seconds that a picture without loss may take."""
_FIRST = 9
"""The level until a picture was acknowledged."""
_PATIENCE, _MOST_PATIENCE = 0.25, 8.0
"""Seconds from a change to a step up; doubled each time that the step was wrong: it was taken back within _TOO_SOON."""
_TOO_SOON = 3.0
_WEIGHT = 0.3
"""Weight of one picture in the averages."""


class Pacer:
    """Flow control for one page. Numbers of pictures rise; `now` is in seconds by any clock that does not go back."""

    def __init__(self) -> None:
        self._sent: dict[int, tuple[int, bool]] = {}
        """Bytes of each picture that was sent and is not acknowledged, and whether it moves."""
        self._level = _FIRST
        self._took = 0.0
        """Average seconds of a picture at this level; 0: unknown."""
        self._per_byte = 1e-7
        self._changed_at = self._rose_at = -math.inf
        self._patience = 0.0

    @property
    def level(self) -> Level:
        """The level of the next picture that moves."""
        return LEVELS[self._level]

    @property
    def in_flight(self) -> int:
        """Pictures that were sent and are not on the page yet."""
        return len(self._sent)

    def lossless_allowed(self, size_bytes: int) -> bool:
        """Return whether a picture that rests may have this size."""
        return size_bytes * self._per_byte <= LOSSLESS

    def sent(self, number: int, size_bytes: int, *, moves: bool = True) -> None:
        """Note a picture that was given to the network. `moves`: encoded at `level`."""
        self._sent[number] = size_bytes, moves

    def acked(self, number: int, took: float, now: float) -> None:
        """Note that a picture and all before it are on the page, or were skipped there. `took`: seconds."""
        size, moves = self._sent.get(number, (0, False))
        self._sent = {n: sent for n, sent in self._sent.items() if n > number}
        if size:
            self._per_byte += _WEIGHT * (took / size - self._per_byte)
        if not moves:
            return
        took = min(took, 4 * self._took + 0.05) if self._took else took  # a single one may be an accident
        self._took = self._took + _WEIGHT * (took - self._took) if self._took else took
        if self._took > BAD:
            if now - self._rose_at < _TOO_SOON:
                self._patience = min(self._patience * 2, _MOST_PATIENCE)
            self._patience = max(self._patience, _PATIENCE)
            self._change(3, now)
        elif self._took < GOOD and now - self._changed_at >= self._patience:
            if now - self._rose_at > 2 * _TOO_SOON:
                self._patience = min(self._patience, _PATIENCE)
            self._change(-1 if self._took > GOOD / 3 else -2, now)
            self._rose_at = now

    def _change(self, steps: int, now: float) -> None:
        level = min(max(self._level + steps, 0), len(LEVELS) - 1)
        if level != self._level:
            self._level, self._took, self._changed_at = level, 0.0, now
