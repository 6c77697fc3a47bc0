"""The last time when each run published something, and how often it does as a rule."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from splatview_viewer.workspace.shards import runs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from splatview_ipc.subscriber.remote_run import RemoteRun
    from splatview_viewer.workspace.slot import Slot

_GAPS = 9
"""Gaps between two publishes of which the middle one is the usual one."""


@dataclass(slots=True)
class _RunTimes:
    """Holds what is known of one run."""

    versions: int = 0
    """Of all of its streams together, when it was looked at last."""
    published_at: float = 0.0
    """Seconds since the epoch; 0: never seen."""
    read_at: float = 0.0
    """When what was read last was published; 0: nothing was read."""
    was_active: bool = False
    """True once it published something while it was looked at."""
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=_GAPS))
    usual_gap_s: float = 0.0

    def take_in(self, versions: int, now: float) -> bool:
        """Take in the number of versions at `now`; return whether it is another one."""
        if versions == self.versions:
            return False
        is_first = not self.versions
        self.versions = versions
        if self.was_active:
            self.gaps.append(now - self.published_at)
            self.usual_gap_s = median(self.gaps)
        # Those of before it was looked at may be of any time.
        self.was_active = not is_first
        self.published_at = now
        return True


class Activity:
    """Knows of all runs when they published something; opens none of their streams."""

    def __init__(self) -> None:
        self._times: dict[str, _RunTimes] = {}
        """By the id of the run."""

    def take_in(
        self,
        runs: Iterable[RemoteRun],
        now: float,
        uncounted: Mapping[RemoteRun, int],
    ) -> set[RemoteRun]:
        """Take in what runs published; return those that published something.

        Args:
            runs: all runs.
            now: seconds since the epoch.
            uncounted: the versions of a run that its script did not publish.
        """
        old_times = self._times
        self._times = {}
        active_runs = set()
        for run in runs:
            times = old_times.get(run.id) or _RunTimes()
            self._times[run.id] = times
            versions = run.total_version - uncounted.get(run, 0)
            if run.alive and times.take_in(versions, now):
                active_runs.add(run)
        return active_runs

    def write_into(self, slot: Slot) -> None:
        """Write what is known of the runs of a stream into its entry."""
        stream = slot.source.stream
        if stream is None:
            return
        entry = slot.entry
        published_at = 0.0
        for run in runs_of(stream):
            times = self._times.get(run.id)
            if times is None:
                continue
            entry.usual_gap_s = times.usual_gap_s
            times.read_at = max(times.read_at, slot.source.time_ns * 1e-9)
            run_published_at = times.published_at
            if not times.was_active and times.read_at:
                # What was read says when it was published.
                run_published_at = min(times.read_at, run_published_at)
            published_at = max(published_at, run_published_at)
        entry.published_at = published_at
