"""How many Gaussians the scenes of running trainings have, over time: seen from outside, whether or not they log it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.kinds.series import scalar_rows, scalar_series
from splatview_viewer.kinds.scalars.curves import Curve

if TYPE_CHECKING:
    from collections.abc import Iterable

    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.workspace.shards.stream import ShardedStream

    Counted = RemoteStream | ShardedStream

PERIOD = 0.25
"""Seconds between two looks."""
_ROWS = 2048


class _Count:
    """One scene's."""

    def __init__(self, stream: Counted) -> None:
        self.stream = stream
        self.series = scalar_series(_ROWS)
        self.last = (-1, -1)
        """How many there were, and of which version."""
        self.varied = False
        self._curve: Curve | None = None

    def look(self) -> bool:
        """True when there are more or less than before."""
        shape, version = self.stream.shape, self.stream.version
        if not shape or not version or (shape[0], version) == self.last:
            return False
        changed, first = shape[0] != self.last[0], self.last[0] < 0
        self.series.extend(scalar_rows(np.array([[version, time.time(), shape[0]]], np.float64)))
        self.last, self._curve = (shape[0], version), None
        self.varied |= changed and not first
        return changed

    @property
    def curve(self) -> Curve:
        if self._curve is None:
            self._curve = Curve.of(self.stream.name, self.series.rows)
        return self._curve


class Counts:
    """Looks at streams of kind gaussians; opens none, as their size is said anyway."""

    def __init__(self) -> None:
        self.changes = 0
        """How often there was something new to be seen."""
        self._counts: dict[int, _Count] = {}
        """By the stream's id()."""
        self._next = 0.0

    def look(self, streams: Iterable[Counted], now: float) -> None:
        """Take down how many there are now in each of all streams that are known."""
        if now < self._next:
            return
        self._next = now + PERIOD
        known = {}
        for stream in streams:
            if stream.kind == "gaussians":
                count = known[id(stream)] = self._counts.get(id(stream)) or _Count(stream)
                if stream.run.alive:
                    self.changes += count.look()
        self._counts = known

    def of(self, stream: Counted) -> Curve | None:
        """A scene's number of Gaussians over time (its steps are versions), if that ever changed."""
        count = self._counts.get(id(stream))
        return count.curve if count is not None and count.varied else None


def on_steps_of(curve: Curve, clock: Curve) -> Curve:
    """The same with the steps that another curve had at these times."""
    rows = np.array(curve.rows, order="F")
    rows[:, 0] = np.interp(rows[:, 1], clock["time"], clock["step"])
    return Curve.of(curve.name, rows)
