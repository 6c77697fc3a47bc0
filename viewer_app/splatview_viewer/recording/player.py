"""The player of a recording: which version of a stream is displayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, JobQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.blocks.unpacking import UnpackedScene
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.recording.recording import Recording, SceneSnapshot

PLAY_PERIOD = 0.1
"""Seconds between two snapshots while a player plays."""


class _ReadySnapshot(NamedTuple):
    """A snapshot that has been read."""

    snapshot: SceneSnapshot
    unpacked: UnpackedScene | None
    """None: it cannot be read."""
    error: str
    """Reason why there is no scene."""


class _LoadingSnapshot(NamedTuple):
    """A snapshot that a job reads."""

    snapshot: SceneSnapshot
    job: Job[UnpackedScene]


class Player:
    """The displayed version of a stream: the live one, or a snapshot.

    It is the same for all viewports of the stream.
    """

    def __init__(
        self, recording: Recording, wake: Callable[[], None], *, live: bool = True
    ) -> None:
        """Start with the live version, or else with the newest snapshot.

        Args:
            recording: with the snapshots.
            wake: called from another thread when a snapshot is ready.
            live: there are live versions beside the recording.
        """
        self.recording = recording
        self.has_live = live
        self.position: SceneSnapshot | None = None
        """The snapshot to be shown; None: the live version."""
        if not live:
            self.position = recording.snapshots[-1]
        self.playing = False
        self._jobs = JobQueue("splatview history", wake)
        self._ready: _ReadySnapshot | None = None
        """The snapshot that was read last."""
        self._loading: _LoadingSnapshot | None = None
        """The snapshot that is being read."""
        self._fed_snapshot: SceneSnapshot | None = None
        """The snapshot that the view was given last."""
        self._next_at = 0.0
        """Time of the next snapshot while it plays."""
        self._load()

    @property
    def index(self) -> int | None:
        """Index of the displayed snapshot; None: the live version is displayed."""
        if self.position is None:
            return None
        return self.recording.index_of(self.position)

    @property
    def step(self) -> int | None:
        """The step of the displayed snapshot; None: the live version is displayed."""
        if self.position is None:
            return None
        return self.position.step

    def seek_step(self, step: float) -> None:
        """Show the snapshot nearest to a step."""
        self.playing = False
        snapshots = self.recording.snapshots
        if snapshots:
            distances = [abs(snapshot.step - step) for snapshot in snapshots]
            self.seek(distances.index(min(distances)))

    def seek(self, index: int) -> None:
        """Show the snapshot of an index, or beyond them the first or the last one."""
        snapshots = self.recording.snapshots
        if not snapshots:
            return
        self.position = snapshots[min(max(index, 0), len(snapshots) - 1)]
        self._load()

    def move(self, offset: int) -> None:
        """Show the snapshot `offset` after the displayed one.

        The live version follows the last snapshot. What was recorded of itself is not
        before it.
        """
        self.playing = False
        index = self.index
        if index is None:
            if offset < 0:
                self.seek(self.recording.past_count + offset)
        elif index + offset >= len(self.recording) and self.has_live:
            self.live()
        else:
            self.seek(index + offset)

    def live(self) -> None:
        """Show the live version; where there is none, the newest snapshot."""
        self.playing = False
        if self.has_live:
            self.position = None
            self._fed_snapshot = None
            self.close()
        else:
            self.seek(len(self.recording) - 1)

    def end(self) -> None:
        """Show the newest snapshot in place of the live version, which is lost."""
        self.has_live = False
        self.live()

    def play(self, on: bool) -> None:
        """Start or stop to play the snapshots; at the end it starts from the first."""
        self.playing = on and len(self.recording) > 1
        if self.playing and self.index in (None, len(self.recording) - 1):
            self.seek(0)

    def tick(self, now: float) -> None:
        """Go to the next snapshot if it is time; once in each turn of the loop."""
        is_displayed = self._fed_snapshot is self.position
        if not self.playing or not is_displayed or now < self._next_at:
            return
        self._next_at = max(self._next_at + PLAY_PERIOD, now + PLAY_PERIOD / 2)
        index = self.index
        assert index is not None
        if index + 1 < len(self.recording):
            self.seek(index + 1)
        else:
            self.move(1)

    def _load(self) -> None:
        """Take in the snapshot that has been read, and start to read the displayed one."""
        if self._loading is not None:
            snapshot, job = self._loading
            if not job.done:
                return
            if job.fault:
                unpacked = None
            else:
                unpacked = job.result()
            self._ready = _ReadySnapshot(snapshot, unpacked, job.fault)
            self._loading = None
        position = self.position
        if position is None:
            return
        if self._ready is None or self._ready.snapshot is not position:
            job = self._jobs.submit(lambda _: self.recording.unpacked(position))
            self._loading = _LoadingSnapshot(position, job)

    def close(self) -> None:
        """Drop all scenes that were read. Idempotent."""
        self._jobs.close()
        self._ready = None
        self._loading = None

    # -- as a source -------------------------------------------------------------------

    def has_new_value(self) -> bool:
        """Return whether `feed` would bring a snapshot that the view does not have."""
        self._load()
        if self.position is None or self._ready is None:
            return False
        return self._ready.snapshot is not self._fed_snapshot

    def feed(self, view: ShownView) -> bool:
        """Give the view the snapshot that is ready.

        Raises ViewerError for one that cannot be read.
        """
        if self._ready is None or self.position is None:
            return False
        snapshot, unpacked, error = self._ready
        if unpacked is not None:
            is_taken = view.update(unpacked)
            if is_taken:
                self._fed_snapshot = snapshot
            return is_taken
        self._fed_snapshot = snapshot
        if snapshot in self.recording.snapshots:
            raise ViewerError(error)
        # It was dropped while it was being read.
        self.seek(self.recording.index_of(snapshot))
        return False

    def resend(self) -> None:
        """Have the view take the present snapshot once more."""
        self._fed_snapshot = None
