"""The size and number of a page's pictures, by what its line carries.

A page tells how long the bytes of each picture took on the line, from the first to the
last; the time that it decodes, and that the viewer encodes, is in none of this: a busy
processor is no slow line. While that is more than SHRINK_ABOVE_S on average, the
pictures shrink to about half their bytes; below GROW_BELOW_S they grow as far as that
leaves room: with each picture until one was too slow, then after some patience.
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
    Level(85, 1.0),
    Level(75, 1.0),
    Level(65, 1.0),
    Level(55, 1.0),
    Level(65, 0.75),
    Level(55, 0.75),
    Level(45, 0.75),
    Level(55, 0.5),
    Level(45, 0.5),
    Level(35, 0.5),
    Level(45, 1 / 3),
    Level(35, 1 / 3),
    Level(35, 0.25),
)
"""The levels of a picture that moves, from the best on. Three levels are about half the
bytes."""
RESTING = Level(95, 1.0)
"""A picture that rests where one without loss is too large."""
GROW_BELOW_S = 0.036
"""Seconds that a picture may take to grow."""
SHRINK_ABOVE_S = 0.060
"""Seconds that a picture takes from which it shrinks. A level up is less than
SHRINK_ABOVE_S / GROW_BELOW_S more bytes."""
MAX_LOSSLESS_S = 1.0
"""Seconds that a picture without loss may take."""
_FIRST_LEVEL = 9
"""The level until a picture was acknowledged."""
_SHRINK_STEPS = 3
"""Levels that are half the bytes."""
_MOST_STEPS_UP = 5
_MIN_PATIENCE_S = 0.25
_MAX_PATIENCE_S = 8.0
"""Seconds from a change to a step up; doubled each time that the step was wrong: it was
taken back within _TOO_SOON_S."""
_TOO_SOON_S = 3.0
RETRY_S = 3.0
"""Seconds after which a picture that rests is tried again without loss, while too little
is known of the line."""
REST_S = 0.25
"""Seconds without another picture after which the last one is sent without loss."""
_WEIGHT = 0.3
"""Weight of one picture in the averages."""
_KEPT_BYTES = 100_000
"""Bytes of a picture that counts as much for the line as all before it."""
_FIRST_S_PER_BYTE = 1e-7
"""Of a line that was not measured yet."""
_SURE_FROM = 4
"""Pictures from which on the line's seconds are known well."""


class _SentPicture(NamedTuple):
    """A picture that was sent."""

    size_bytes: int
    moves: bool
    """True for one that was encoded at the level of pictures that move."""


class _LinePicture(NamedTuple):
    """A picture as the line carried it."""

    size_bytes: int
    s_per_byte: float


class Pacer:
    """Flow control for one page: chooses how large its pictures are.

    Numbers of pictures rise; `now` is in seconds by any clock that does not go back.
    """

    def __init__(self) -> None:
        self._sent: dict[int, _SentPicture] = {}
        """Pictures that were sent and are not acknowledged, by number."""
        self._level = _FIRST_LEVEL
        self._mean_s = 0.0
        """Average seconds of a picture at this level; 0: unknown."""
        self._last_s = math.inf
        """Seconds of the last picture at this level; inf: there was none."""
        self._s_per_byte = _FIRST_S_PER_BYTE
        self._last_on_line = _LinePicture(0, math.inf)
        self._measured = 0
        """Pictures of which the line's seconds are known."""
        self._changed_at = -math.inf
        self._rose_at = -math.inf
        self._patience_s = 0.0

    @property
    def level(self) -> Level:
        """The level of the next picture that moves."""
        return LEVELS[self._level]

    @property
    def in_flight(self) -> int:
        """Pictures that were sent and are not on the page yet."""
        return len(self._sent)

    def lossless_allowed(self, size_bytes: int) -> bool:
        """Return True if a picture that rests may have this size."""
        return size_bytes * self._s_per_byte <= MAX_LOSSLESS_S

    @property
    def is_sure(self) -> bool:
        """True if the line was measured by more than a few pictures."""
        return self._measured >= _SURE_FROM

    def sent(self, picture_number: int, size_bytes: int, *, moves: bool = True) -> None:
        """Note a picture that was passed to the network.

        `moves` is True for one that was encoded at `level`.
        """
        self._sent[picture_number] = _SentPicture(size_bytes, moves)

    def acked(self, picture_number: int, line_s: float, now: float) -> None:
        """Note that a picture and all before it are on the page, or were skipped there.

        Args:
            picture_number: of the picture.
            line_s: seconds from its first byte to its last one.
            now: seconds by the same clock as before.
        """
        picture = self._sent.get(picture_number)
        self._sent = {n: sent for n, sent in self._sent.items() if n > picture_number}
        if picture is None:
            return
        if picture.size_bytes:
            self._note_line(picture.size_bytes, line_s)
        if picture.moves:
            is_first = self._last_s == math.inf
            # A processor that is busy meanwhile delays one picture, a slow line all.
            previous_s = self._last_s
            self._last_s = line_s
            self._average(min(line_s, previous_s))
            self._adapt(now, may_shrink=not is_first)

    def _note_line(self, size_bytes: int, line_s: float) -> None:
        """Take a picture into the average seconds of a byte: a large one tells more."""
        s_per_byte = line_s / size_bytes
        last = self._last_on_line
        self._last_on_line = _LinePicture(size_bytes, s_per_byte)
        # A single slow one may be an accident, unless the one before was too small to
        # tell.
        if 2 * last.size_bytes >= size_bytes:
            s_per_byte = min(s_per_byte, last.s_per_byte)
        weight = size_bytes / (size_bytes + _KEPT_BYTES)
        self._s_per_byte += weight * (s_per_byte - self._s_per_byte)
        self._measured += 1

    def _average(self, line_s: float) -> None:
        """Take the seconds of a picture that moves into the average."""
        if not self._mean_s:
            self._mean_s = line_s
            return
        # A single slow one may be an accident.
        line_s = min(line_s, 4 * self._mean_s + 0.05)
        self._mean_s += _WEIGHT * (line_s - self._mean_s)

    def _adapt(self, now: float, *, may_shrink: bool) -> None:
        """Choose the level of the next picture by the average."""
        since_rise = now - self._rose_at
        if self._mean_s > SHRINK_ABOVE_S:
            if not may_shrink:
                return
            if since_rise < _TOO_SOON_S:
                self._patience_s = min(self._patience_s * 2, _MAX_PATIENCE_S)
            self._patience_s = max(self._patience_s, _MIN_PATIENCE_S)
            self._change(_SHRINK_STEPS, now)
            return
        has_waited = now - self._changed_at >= self._patience_s
        if self._mean_s < GROW_BELOW_S and has_waited:
            if since_rise > 2 * _TOO_SOON_S:
                self._patience_s = min(self._patience_s, _MIN_PATIENCE_S)
            self._change(-self._steps_up(), now)
            self._rose_at = now

    def _steps_up(self) -> int:
        """Return the levels by which pictures may grow, as far as their bytes tell."""
        growth = GROW_BELOW_S / max(self._mean_s, 1e-6)
        steps = math.floor(_SHRINK_STEPS * math.log2(growth)) - 1
        return min(max(steps, 1), _MOST_STEPS_UP)

    def _change(self, steps: int, now: float) -> None:
        """Go down by a number of levels, or up by a negative one."""
        level = min(max(self._level + steps, 0), len(LEVELS) - 1)
        if level != self._level:
            self._level = level
            self._mean_s = 0.0
            self._last_s = math.inf
            self._changed_at = now
