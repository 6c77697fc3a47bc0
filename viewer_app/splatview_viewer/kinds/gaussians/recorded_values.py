"""The numbers of one Gaussian in the recorded snapshots of its training."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.core.errors import FileError
from splatview_viewer.render.activation import activate
from splatview_viewer.render.picking import values_later
from splatview_viewer.scene_view.questions import Question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.jobs import Job
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.recording.recording import Recording, SceneSnapshot
    from splatview_viewer.render.picking import GaussianValues

MAX_SNAPSHOTS = 240
"""Snapshots of which the numbers are read."""


class Course(NamedTuple):
    """The numbers of one Gaussian over time."""

    values: Sequence[GaussianValues]
    """The newest last."""
    snapshot_count: int = 0
    """How many of them are of recorded snapshots; 0: all are of versions that came
    since the Gaussian was chosen."""
    first_step: int | None = None
    """The step of the first snapshot since the number of Gaussians changed; None: it
    never did."""


class RecordedValues(Question):
    """Reads the numbers of one Gaussian in the recorded snapshots, in the background.

    A row is the same Gaussian only while the number of Gaussians stays, so that
    snapshots from before it changed last are left out.
    """

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view, "recorded values")
        self._scene_view = view
        self.values: Sequence[GaussianValues] = ()
        """The numbers in the snapshots that were read, the newest last."""
        self.first_step: int | None = None
        """The step of the first snapshot since the number of Gaussians changed; None:
        it never did."""
        self._snapshots: Sequence[SceneSnapshot] = ()
        """The snapshots of which the numbers are wanted, the oldest first."""
        self._read: dict[SceneSnapshot, GaussianValues | None] = {}
        """The numbers by snapshot; None of one that could not be read."""
        self._key: tuple[Recording, int, int] | None = None
        """Recording, index and number of Gaussians that `_read` is about."""
        self._changes = -1
        """`Recording.changes` when its snapshots were looked at."""

    @property
    def is_live_newer(self) -> bool:
        """True if a version is shown that is newer than all snapshots."""
        player = self._scene_view.data.player
        if player is None or player.position is not None:
            return False
        recording = player.recording
        if not recording.snapshots:
            return True
        return recording.live_time_ns > recording.snapshots[-1].time_ns

    def follow(self, index: int, count: int) -> bool:
        """Have new snapshots read; return whether numbers have arrived.

        Args:
            index: of the Gaussian.
            count: the number of Gaussians of the scene that is shown.
        """
        player = self._scene_view.data.player
        if player is None:
            self.forget()
            return False
        recording = player.recording
        key = (recording, index, count)
        if key != self._key:
            self.forget()
            self._key = key
        has_news = self._take_in()
        if self._job is None and recording.changes != self._changes:
            self._changes = recording.changes
            self._begin(recording, index, count)
        return has_news

    def forget(self) -> None:
        """Drop all numbers, and give up reading."""
        super().forget()
        self.values = ()
        self.first_step = None
        self._snapshots = ()
        self._read = {}
        self._key = None
        self._changes = -1

    def _take_in(self) -> bool:
        """Take the numbers that have been read; return whether there are some."""
        answer = self.take()
        if answer is None:
            return False
        self._read.update(answer)
        numbers = [self._read.get(snapshot) for snapshot in self._snapshots]
        self.values = [values for values in numbers if values is not None]
        return True

    def _begin(self, recording: Recording, index: int, count: int) -> None:
        """Start to read the snapshots that have not been read."""
        alike = _newest_alike(recording.snapshots, count)
        is_cut = len(alike) < len(recording.snapshots)
        self.first_step = alike[0].step if alike and is_cut else None
        stride = 1
        while len(alike) > MAX_SNAPSHOTS * stride:
            # Twice as far apart, so that those that were read stay wanted.
            stride *= 2
        self._snapshots = alike[::stride]
        previous = self._read
        self._read = {s: previous[s] for s in self._snapshots if s in previous}
        missing = [s for s in self._snapshots if s not in self._read]
        if missing:
            self._job = self._jobs.submit(
                partial(_read_rows, recording, missing, index)
            )


def _newest_alike(
    snapshots: Sequence[SceneSnapshot], count: int
) -> Sequence[SceneSnapshot]:
    """Return the newest snapshots, as far back as they have so many Gaussians."""
    start = len(snapshots)
    while start and snapshots[start - 1].count == count:
        start -= 1
    return snapshots[start:]


def _read_rows(
    recording: Recording, snapshots: Sequence[SceneSnapshot], index: int, job: Job
) -> dict[SceneSnapshot, GaussianValues | None]:
    """Read one Gaussian of each snapshot."""
    rows: dict[SceneSnapshot, GaussianValues | None] = {}
    for position, snapshot in enumerate(snapshots):
        job.report("reading", position / len(snapshots))
        rows[snapshot] = None
        # It was dropped meanwhile, or its file is gone or damaged.
        with suppress(FileError, KeyError):
            scene, _ = activate(recording.row(snapshot, index))
            rows[snapshot] = values_later(scene, 0, snapshot.version)()
    return rows
