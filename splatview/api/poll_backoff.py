"""How long to sleep until a stream's next frame: long while none can be due, short when it is, longer when none comes.

Whoever waits for a frame looks at a word of shared memory; nobody wakes it. So it learns the stream's rate from the
times at which its frames were published, sleeps until shortly before the next one, and looks often only then.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from statistics import median

SHORTEST = 2e-5
"""Seconds of the shortest nap: about what it takes to look."""
_EARLY = 1e-4
"""Seconds before a frame is due at which looking begins, and more where the stream is irregular."""
_SHARE = 0.1
"""How long a nap is, of the time that the frame is late or the stream irregular."""
_LATE, _LATE_NAP = 1.0, 2e-3
"""The longest nap while a frame is at most so many seconds late."""
_IDLE, _IDLE_NAP, _ASLEEP_NAP = 3.0, 1e-2, 2e-2
"""The longest nap until it is so late, and after that."""
_KNOWN, _LATELY = 3, 9
"""Frames after which the rate is known, and of how many it is."""
_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30
_SLACK = 1000
"""Nanoseconds by which the system may wake us late; 50 times as much is usual."""


class Naps:
    """What is known of when a stream's frames come. Times are seconds since the epoch."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None
        self._periods: deque[float] = deque(maxlen=_LATELY)
        self._period = 0.0
        self._jitter = 0.0

    def came(self, version: int, at: float) -> None:
        """A frame with this version was published at this time."""
        last, self._last = self._last, (version, at)
        if last is None or version <= last[0] or at <= last[1]:
            return
        # Medians: one that comes far too late says nothing about the others, and another rate is known in five frames.
        self._periods.append((at - last[1]) / (version - last[0]))
        self._period = median(self._periods)
        self._jitter = median(abs(period - self._period) for period in self._periods)

    def nap(self, now: float) -> float:
        """How long to sleep now, at most."""
        if self._last is None or len(self._periods) < _KNOWN:
            late = now - self._last[1] if self._last is not None else 0.0
            return min(max(_SHARE * late, SHORTEST), _longest(late)) if late > 0 else _LATE_NAP
        due = self._last[1] + self._period
        early = due - now - 3 * self._jitter - _EARLY
        if early > SHORTEST:
            return early
        return min(max(_SHARE * max(abs(now - due), self._jitter), SHORTEST), _longest(now - due))


def while_busy(waited: float) -> float:
    """How long to sleep while a frame has been published and the GPU has not come to it for `waited` seconds."""
    return min(max(_SHARE * waited, SHORTEST / 2), _LATE_NAP)


def _longest(late: float) -> float:
    return _LATE_NAP if late < _LATE else _IDLE_NAP if late < _IDLE else _ASLEEP_NAP


def be_punctual() -> None:
    """Have the system wake this thread on time from now on."""
    if not getattr(_threads, "punctual", False):
        _threads.punctual = True
        if _prctl(_PR_GET_TIMERSLACK, 0) > _SLACK:
            _prctl(_PR_SET_TIMERSLACK, _SLACK)


def sleep(seconds: float) -> None:
    """Sleep; the shortest naps are not worth it: to fall asleep and be woken takes longer, and what is done with a
    frame then begins with cold caches."""
    if seconds > SHORTEST:
        time.sleep(seconds)


_threads = threading.local()
try:
    _libc = ctypes.CDLL(None)
    _libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]

    def _prctl(option: int, value: int) -> int:
        return int(_libc.prctl(option, value, 0, 0, 0))
except (OSError, AttributeError):  # another system
    def _prctl(option: int, value: int) -> int:
        return -1
