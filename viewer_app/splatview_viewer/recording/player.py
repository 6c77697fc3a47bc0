"""Going back through a recording: which snapshot is shown, and jobs that have the next ones ready in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.recording.recording import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.view import ShownView
    from splatview_viewer.recording.recording import Recording
    from splatview_viewer.scene.scene import GaussianScene

CACHE_BYTES = 256 << 20
"""Memory for scenes that are ready to be shown."""
AHEAD = 4
"""Snapshots that are made ready before they are asked for, on the way that one goes."""
UNPACKED = 3
"""Size of a scene that is ready, in that of its snapshot."""
PLAY_PERIOD = 0.1
"""Seconds between two snapshots while it plays."""


class Player:
    """The part of a stream that is shown: what comes live, or a snapshot. The same for all who look at the stream."""

    def __init__(self, recording: Recording, wake: Callable[[], None], *, live: bool = True) -> None:
        """`live`: there is something beside the recording. `wake`: called from another thread when one is ready."""
        self.recording = recording
        self.has_live = live
        self.position: Snapshot | None = None if live else recording.snapshots[-1]
        """The snapshot to be shown; None: what comes live."""
        self.playing = False
        self._jobs = Jobs("splatview history", wake)
        self._ready: dict[Snapshot, GaussianScene | str] = {}
        """Scenes, or the reasons why there are none; the one that was used last is the last."""
        self._newest: tuple[Snapshot, GaussianScene | str] | None = None
        """The one that was waited for and became ready last."""
        self._making: tuple[Snapshot, Job[GaussianScene], bool] | None = None
        """The one that is being made ready; True if it was waited for when that began."""
        self._fed: Snapshot | None = None
        """The snapshot that the view was given last."""
        self._next_at = 0.0
        self._direction = 1
        self._make()

    @property
    def at(self) -> int | None:
        """The place of what is shown among the snapshots; None: live."""
        return None if self.position is None else self.recording.place(self.position)

    def seek(self, place: int) -> None:
        """Show the snapshot at this place, or the first or last."""
        snapshots = self.recording.snapshots
        if not snapshots:
            return
        chosen = snapshots[min(max(place, 0), len(snapshots) - 1)]
        if chosen is self.position:
            return
        self._direction = 1 if self.position is not None and chosen.number > self.position.number else -1
        self.position = chosen
        if chosen in self._ready:
            self._newest = chosen, self._ready[chosen]
        self._make()

    def move(self, by: int) -> None:
        """Show the snapshot so many places on. Before what is live lies the last."""
        self.playing = False
        at = self.at
        if at is None:
            if by < 0:
                self.seek(len(self.recording) + by)
        elif at + by >= len(self.recording) and self.has_live:
            self.live()
        else:
            self.seek(at + by)

    def live(self) -> None:
        """Show what comes; where nothing does, the newest snapshot."""
        self.playing = False
        if self.has_live:
            self.position = self._fed = None
            self.close()
        else:
            self.seek(len(self.recording) - 1)

    def end(self) -> None:
        """Nothing comes live any more, and what came last is not to be had: the newest snapshot takes its place."""
        self.has_live = False
        self.live()

    def play(self, on: bool) -> None:
        """Go from one snapshot to the next; from the first if it is at the end."""
        self.playing = on and len(self.recording) > 1
        if self.playing and self.at in (None, len(self.recording) - 1):
            self.seek(0)

    def tick(self, now: float) -> None:
        """Play on; once in each turn of the loop."""
        if self.playing and self._fed is self.position and now >= self._next_at:
            self._next_at = max(self._next_at + PLAY_PERIOD, now + PLAY_PERIOD / 2)
            at = self.at
            assert at is not None
            if at + 1 < len(self.recording):
                self.seek(at + 1)
            else:
                self.move(1)

    # -- snapshots that are ready --------------------------------------------------------------------------------

    def _make(self) -> None:
        """Take in the one that is ready, and begin with the next: the one that is shown, or one that may be soon."""
        if self._making is not None:
            snapshot, job, waited_for = self._making
            if not job.done:
                return
            self._making = None
            made = self._ready[snapshot] = job.fault or job.result()
            if waited_for or snapshot is self.position:
                self._newest = snapshot, made
        if (at := self.at) is None or self.position is None:
            return
        snapshots, d = self.recording.snapshots, self._direction
        near = [at + d * i for i in (*range(1, AHEAD + 1), -1)]
        wanted = [self.position, *(snapshots[place] for place in near if 0 <= place < len(snapshots))]
        keep, room = list[Snapshot](), CACHE_BYTES
        for snapshot in dict.fromkeys([*wanted, *reversed(self._ready)]):
            room -= UNPACKED * snapshot.bytes
            if room >= 0 or snapshot is self.position:
                keep.append(snapshot)
        self._ready = {snapshot: self._ready[snapshot] for snapshot in reversed(keep) if snapshot in self._ready}
        for snapshot in keep:
            if snapshot not in self._ready:
                job = self._jobs.submit(lambda _, one=snapshot: self.recording.scene(one))
                self._making = snapshot, job, snapshot is self.position
                return

    def close(self) -> None:
        """Give back all that is ready. Idempotent."""
        self._jobs.close()
        self._newest = self._making = None
        self._ready.clear()

    # -- as a source ---------------------------------------------------------------------------------------------

    def has_news(self) -> bool:
        """Return whether `feed` would bring something new, while a snapshot is shown."""
        self._make()
        return self.position is not None and self._newest is not None and self._newest[0] is not self._fed

    def feed(self, view: ShownView) -> bool:
        """Give the view the snapshot that is ready. Raises ViewerError for one that cannot be read."""
        if self._newest is None or self.position is None:
            return False
        snapshot, made = self._newest
        if not isinstance(made, str):
            if taken := view.update(made):
                self._fed = snapshot
            return taken
        self._fed = snapshot
        if snapshot in self.recording.snapshots:
            raise ViewerError(made)
        self.seek(self.recording.place(snapshot))  # it was dropped while it was being read
        return False

    def again(self) -> None:
        """Bring the snapshot that is shown once more."""
        self._fed = None
