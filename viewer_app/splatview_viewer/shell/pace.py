"""The times of one screen's pictures."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from splatview_viewer.gpu.governor import next_due

if TYPE_CHECKING:
    from splatview_viewer.gpu.work import GpuWork

_CATCH_UP = 0.001
"""Seconds to wait for a GPU that is behind."""
_FOLLOWING_S = 0.05
"""Seconds between interfaces that only follow pictures, beside a process that needs the
GPU: each has the GPU turn to OpenGL."""
_ASIDE_S = 0.25
_ASIDE_SHARED_S = 2.0
"""Seconds between interfaces that tell nothing but new numbers beside pictures which the
screen draws by itself; and beside a process that needs the GPU, where the versions of
what it draws are as far apart."""
_IN_FLIGHT = 2
"""Pictures that the GPU may be behind."""


class Pace:
    """The times of one screen's pictures.

    They follow --max-fps and the share of the GPU, and come after it has caught up.
    """

    def __init__(self, gpu_work: GpuWork, max_fps: float) -> None:
        self._gpu_work = gpu_work
        self._period = 1 / max_fps
        self._next = 0.0
        self.next_interface = 0.0
        """The time of the next interface that is drawn apart at the earliest."""
        self._interface_at = -math.inf
        """The time of the last one."""
        self.drawn_at = -math.inf
        """The time of the last picture or interface; -inf before the first."""
        self._in_flight: deque[int] = deque()
        self.times: deque[float] = deque(maxlen=240)
        """The times of the last pictures."""

    def next(self, now: float) -> float:
        """Return the time of the next picture at the earliest."""
        while self._in_flight and self._in_flight[0] <= self._gpu_work.finished:
            self._in_flight.popleft()
        earliest = max(self._next, self._gpu_work.governor.next_picture())
        if len(self._in_flight) < _IN_FLIGHT:
            return earliest
        return max(earliest, now + _CATCH_UP)

    def draw(self, now: float) -> None:
        """Count a picture that is about to be drawn."""
        self.drawn_at = now
        governor = self._gpu_work.governor
        period = max(self._period, governor.least_period)
        self._next = next_due(self._next, now, period)
        governor.begin_picture()
        self.times.append(now)

    @property
    def next_following(self) -> float:
        """The time of the next interface at the earliest that only follows pictures."""
        if not self._gpu_work.governor.account.shared:
            return self.next_interface
        return max(self.next_interface, self._interface_at + _FOLLOWING_S)

    @property
    def next_aside(self) -> float:
        """The time of the next interface at the earliest with nothing but new numbers.

        It lies beside pictures that the screen draws by itself. Those of all screens come
        at the same times: the GPU turns to them once.
        """
        period = _ASIDE_S
        if self._gpu_work.governor.account.shared:
            period = _ASIDE_SHARED_S
        if math.isinf(self._interface_at):
            return self.next_interface
        following = (math.floor(self._interface_at / period) + 1) * period
        return max(self.next_interface, following)

    def draw_interface(self, now: float) -> None:
        """Count an interface that is about to be drawn apart."""
        self._interface_at = now
        self.next_interface = next_due(self.next_interface, now, self._period)
        self.drawn_at = now

    def present(self) -> None:
        """Count what the GPU was given for it."""
        self._in_flight.append(self._gpu_work.submitted)

    def fps(self, now: float) -> float:
        """Return the number of pictures within the last second."""
        return float(sum(1 for t in self.times if t > now - 1))
