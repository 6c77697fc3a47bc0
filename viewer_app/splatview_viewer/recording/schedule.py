"""The choice of a stream's versions to record: one in each interval, and the last."""

from __future__ import annotations

import math
from dataclasses import dataclass

from splatview_viewer.recording.recording import DEFAULT_INTERVAL

_MAX_WAIT = 10.0
"""Seconds after which a version is taken though fewer came than the interval asks for;
grows with the interval."""
_GAP = 1.0
"""Seconds between two snapshots at least."""
_QUIET = 5.0
"""Seconds without a new version, or three times the period between the last two, after
which the last one is taken: as a rule it is the result of the training."""


@dataclass
class SnapshotSchedule:
    """The versions of one run, which count from 1, and the snapshots taken of them.

    An `interval` is of versions, or of steps where the user asks for steps.
    """

    step_interval: int | None
    """Steps between two snapshots as the user asks for them; None: versions count."""
    version: int = 0
    """The newest one."""
    arrived_at: float = math.inf
    """Time at which the newest version was noticed."""
    period: float = 0.0
    """Seconds between the newest version and the one before it."""
    examined: int = 0
    """The newest version of which a snapshot was begun, or whose step came too soon."""
    snapshot_version: int = 0
    """Version of the last snapshot; 0: there is none, or it failed."""
    snapshot_step: int = 0
    snapshot_at: float = -math.inf
    """Time at which the last snapshot was begun."""
    next_at: float = 0.0
    """Time before which no snapshot is begun."""

    @property
    def first_interval(self) -> float:
        """The interval of a recording at first, which grows as it fills."""
        return float(self.step_interval or DEFAULT_INTERVAL)

    def notice(self, version: int, now: float) -> None:
        """Take note of the time of the stream's version, if it is a new one."""
        if version == self.version:
            return
        self.period = max(now - self.arrived_at, 0.0)
        self.version = version
        self.arrived_at = now

    def seems_last(self, now: float) -> bool:
        """Return whether the newest version seems to be the last one of the run."""
        return now - self.arrived_at >= max(_QUIET, 3 * self.period)

    def is_due(
        self, is_last: bool, is_writing: bool, interval: float, now: float
    ) -> bool:
        """Return whether a snapshot of the newest version is due.

        Steps are known only once the frame is read: `comes_too_soon`.

        Args:
            is_last: the version is the last one of the run.
            is_writing: the snapshots before are still being written.
            interval: the interval of the recording.
            now: the time.
        """
        if self.version <= self.snapshot_version:
            return False
        if is_last and self.snapshot_version:
            return True
        if self.version <= self.examined:
            return False
        if not self.snapshot_version:
            return True
        if is_writing:
            return False
        if self.step_interval is not None:
            return True
        max_wait = _MAX_WAIT * interval / self.first_interval
        has_waited = now >= self.snapshot_at + max_wait
        return has_waited or self.version >= self.snapshot_version + interval

    def comes_too_soon(self, step: int, interval: float) -> bool:
        """Return whether fewer steps than the interval follow the last snapshot."""
        if self.step_interval is None or not self.snapshot_version:
            return False
        return 0 <= step - self.snapshot_step < interval

    def note_snapshot(self, version: int, step: int, now: float) -> None:
        """Take note of the version of which a snapshot is taken now."""
        self.snapshot_version = version
        self.snapshot_step = step
        self.snapshot_at = now

    def set_pause(self) -> None:
        """Wait for a while, now that the snapshot is taken."""
        self.next_at = self.snapshot_at
        if self.step_interval is None:
            self.next_at += _GAP
