"""When the next picture may go to a page, and how large it may be. Plain arithmetic: no network, no clock of its own.

What lies between is taken for one line: whatever is sent waits until it is free, takes so long for each byte (the
network, or a phone that decodes), and so long for itself (the way there and back, the page's next frame). Both are
learned from how long pictures of different sizes took. Pictures that move are then made as small as they must be to
take GOOD seconds of the line each. As long as all have one size nobody can tell a long way from a slow one: where that
makes a difference, two small ones in between show it, or a large one.
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
"""Seconds of the line that a picture should take, and with how many a level is kept once it was chosen."""
LOSSLESS = 1.0
"""Seconds of the line that a picture without loss may take."""
_UNSURE = 0.025
"""Seconds by which the time that a picture takes of the line may be misjudged until it is tried with small ones."""
_TRIES, _TRY_AGAIN = 2, 4.0
"""How many, and seconds until something is tried again."""
_FIRST = 10
"""The level until something is known."""
_PATIENCE, _MOST_PATIENCE = 0.6, 10.0
"""Seconds for which a better level must look possible; doubled each time that it turned out wrong."""
_TOO_SOON = 3.0
"""A fall within so many seconds after a rise means that the rise was wrong."""
_BYTES = {85: 1.0, 75: 0.85, 65: 0.77, 55: 0.71, 45: 0.65, 35: 0.58}
"""How many bytes a picture has in these qualities, roughly; each picture's own share is learned."""


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
        self._level = 0
        self._tries, self._trial, self._tried_at = 0, 0, -math.inf
        self._known = False
        self._rose_at = -math.inf
        self._possible_since: float | None = None
        self._patience = _PATIENCE

    @property
    def level(self) -> Level:
        """What the next picture should be."""
        if not self._known:
            return LEVELS[_FIRST]
        return LEVELS[self._trial if self._tries else self._level]

    @property
    def trying(self) -> bool:
        """Whether `level` is worse than it need be, to learn something."""
        return not self._known or (self._tries > 0 and self._trial > self._level)

    @property
    def quality(self) -> int:
        return self.level.quality

    @property
    def scale(self) -> float:
        return self.level.scale

    @property
    def in_flight(self) -> int:
        """Pictures that were sent and do not stand on the page yet."""
        return len(self._sent)

    @property
    def waiting_since(self) -> float | None:
        """When the oldest picture was sent that is not acknowledged; None: all are."""
        return self._sent[0].at if self._sent else None

    @property
    def ready(self) -> bool:
        """Whether another picture may be sent."""
        return len(self._sent) < IN_FLIGHT

    @property
    def rtt(self) -> float:
        """Seconds that an empty picture would take until its answer."""
        return self._line.base

    @property
    def bytes_per_second(self) -> float:
        """What the way to the page takes, as far as it has been tried."""
        return 1 / max(self._line.per_byte, 1e-12)

    def lossless_allowed(self, size_bytes: int) -> bool:
        """Whether a picture that rests may be so large."""
        return size_bytes * self._line.per_byte <= LOSSLESS

    def sent(self, number: int, size_bytes: int, now: float, level: Level | None = None) -> None:
        """A picture was handed to the network. `level`: how it was encoded; None for one that rests."""
        self._sent.append(_Sent(number, size_bytes, now))
        if level is not None:
            full = size_bytes / _share(level)
            self._full = full if not self._full else self._full + 0.4 * (full - self._full)
            self._tries = max(self._tries - 1, 0)
            self._choose(now)

    def acked(self, number: int, now: float) -> None:
        """Picture `number` stands on the page, or was passed over there, and all before it as well."""
        reached = [s for s in self._sent if s.number <= number]
        if not reached:
            return
        self._sent = [s for s in self._sent if s.number > number]
        last = reached[-1]
        if last.measured and last.number == number:
            begin = max(last.at, min(self._acked_at - self._line.base, now))
            self._line.took(max(last.size, 1), now - begin, now)
            self._known = True
            self._choose(now)
            if now - self._tried_at > _TRY_AGAIN:
                self._try(now)
        self._acked_at = now

    def pause(self) -> None:
        """The page is not seen for a while: what is on its way will be late without anybody's fault."""
        for s in self._sent:
            s.measured = False

    def _try(self, now: float) -> None:
        """Send a few small pictures, or a large one, where it is not known well enough what that would change."""
        share, line = _share(LEVELS[self._level]), self._line
        size, unsure = self._full * share, line.unsure
        if size * unsure > _UNSURE and size * min(line.per_byte + unsure, line.most_per_byte) > BAD:
            small = (k for k, level in enumerate(LEVELS) if _share(level) <= 0.35 * share)
            self._tries, self._trial, self._tried_at = _TRIES, next(small, len(LEVELS) - 1), now
            return
        large = max((k for k in range(self._level) if _share(LEVELS[k]) >= 2 * share), default=0)
        if self._level and self._full * _share(LEVELS[large]) * (line.per_byte - 2 * unsure) < GOOD:
            self._tries, self._trial, self._tried_at = 1, large, now

    def _choose(self, now: float) -> None:
        if not self._full:
            return
        takes = [self._full * _share(level) * self._line.per_byte for level in LEVELS]
        if takes[self._level] > BAD and self._level < len(LEVELS) - 1:
            self._level = next((k for k, t in enumerate(takes) if t <= GOOD and k > self._level), len(LEVELS) - 1)
            self._possible_since = None
            if now - self._rose_at < _TOO_SOON:
                self._patience = min(self._patience * 2, _MOST_PATIENCE)
                self._rose_at = -math.inf
            return
        if self._level == 0 or takes[self._level - 1] > GOOD:
            self._possible_since = None
            return
        if self._possible_since is None:
            self._possible_since = now
        if now - self._possible_since >= self._patience:
            if now - self._rose_at > 2 * _TOO_SOON:
                self._patience = max(self._patience / 2, _PATIENCE)
            # Halfway up to what looks possible: far below it there is much to gain, and little to get wrong.
            best = next(k for k, t in enumerate(takes) if t <= GOOD)
            self._level -= max(1, (self._level - best) // 2)
            self._rose_at = self._possible_since = now


def _share(level: Level) -> float:
    """Bytes of a picture over those at the best level."""
    return _BYTES[level.quality] * level.scale**1.7


class _Line:
    """Seconds that a picture takes: `base + per_byte * size`, both learned (a Kalman filter of these two)."""

    NOISE = 0.010
    """Seconds by which a single picture is off at least, such as the page's wait for its next frame."""
    MOST_BASE, MOST_PER_BYTE = 0.3, 1e-5
    """Seconds by which they may be misjudged at most."""

    def __init__(self) -> None:
        self.base, self.per_byte = 0.03, 1e-7
        self._bb, self._bk, self._kk = 0.1**2, 0.0, 1e-6**2  # their covariance
        self._at: float | None = None
        self._noise = self.NOISE**2
        """The variance of single pictures, as seen lately: large for a page that has other things to do."""
        self._strange = 0
        self.most_per_byte = math.inf
        """As much as the last picture took for each byte if nothing else took any time."""

    @property
    def unsure(self) -> float:
        """By how many seconds `per_byte` may be off (standard deviation)."""
        return math.sqrt(self._kk)

    def took(self, size: float, seconds: float, now: float) -> None:
        """A picture of `size` bytes took so long."""
        passed = min(max(now - self._at, 0.0), 5.0) if self._at is not None else 0.0
        self._at = now
        self.most_per_byte = seconds / size
        self._bb += 0.02**2 * passed if self._bb < self.MOST_BASE**2 else 0.0
        self._kk += (0.3 * self.per_byte + 1e-8) ** 2 * passed if self._kk < self.MOST_PER_BYTE**2 else 0.0
        off = seconds - self.base - self.per_byte * size
        noise = self._noise + (0.1 * seconds) ** 2
        seen = min(off * off, 9 * self._expected(size, noise))
        self._noise = max(self._noise + 0.1 * (seen - self._expected(size, self._noise)), self.NOISE**2)
        if off * off > 9 * self._expected(size, noise):  # once is an accident; twice: all is different now
            self._strange += 1
            if self._strange < 2:
                noise += off * off / 4
            else:
                self._noise = self.NOISE**2
                factor = min(off * off / self._expected(size, noise), (self.MOST_BASE**2 / self._bb),
                             (self.MOST_PER_BYTE**2 / self._kk))
                factor = max(factor, 1.0)
                self._bb, self._bk, self._kk = self._bb * factor, self._bk * factor, self._kk * factor
        else:
            self._strange = 0
        expected = self._expected(size, noise)
        bb, bk, kk = self._bb, self._bk, self._kk
        of_base, of_byte = (bb + size * bk) / expected, (bk + size * kk) / expected
        # Neither is less than nothing, nor alone more than both were together.
        most = seconds + 2 * (math.sqrt(noise) - self.NOISE)
        self.base = min(max(self.base + of_base * off, 0.0), most)
        self.per_byte = max(min(self.per_byte + of_byte * off, most / size), 1e-10)
        self._bb = max(bb - of_base * (bb + size * bk), 1e-10)
        self._bk = bk - of_base * (bk + size * kk)
        self._kk = max(kk - of_byte * (bk + size * kk), 1e-20)

    def _expected(self, size: float, noise: float) -> float:
        """The variance of what is measured, for what is known."""
        return self._bb + 2 * size * self._bk + size * size * self._kk + noise
