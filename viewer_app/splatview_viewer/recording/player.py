"""Going back through a recording: which snapshot is shown, and jobs that have the next ones ready in time."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.formats import scene_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.old_view import View
    from splatview_viewer.recording.recording import Recording, Snapshot
    from splatview_viewer.scene.scene import GaussianScene

log = logging.getLogger("splatview")

CACHE_BYTES = 256 << 20
"""Of scenes that are ready to be shown."""
AHEAD = 4
"""Snapshots that are made ready before they are asked for, on the way that one goes."""
PLAY_PERIOD = 0.1
"""Seconds between two snapshots while it plays."""


class Decoder:
    """Unpacks snapshots one after the other in jobs, the one that is waited for first."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake`: called from another thread when one is ready."""
        self._jobs = Jobs("splatview history", wake)
        self._wanted: list[Snapshot] = []
        self._ready: OrderedDict[int, GaussianScene | str] = OrderedDict()
        """By number: a scene, or why there is none."""
        self._newest: tuple[Snapshot, GaussianScene | str] | None = None
        """What was made ready last because it was waited for."""
        self._making: tuple[Snapshot, Job[GaussianScene], bool] | None = None
        """What is being made ready, and whether it was waited for when that began."""

    def want(self, snapshots: Sequence[Snapshot]) -> None:
        """Make these ready: the first is waited for, the others may be soon. Nothing: give back all that is ready."""
        self._wanted = list(snapshots)
        if not self._wanted:
            self.close()
            return
        if (found := self._ready.get(self._wanted[0].number)) is not None:
            self._ready.move_to_end(self._wanted[0].number)
            self._newest = self._wanted[0], found
        self._go_on()

    def newest(self) -> tuple[Snapshot, GaussianScene | str] | None:
        """What was waited for and became ready last: which, and the scene or why there is none."""
        self._go_on()
        return self._newest

    def _go_on(self) -> None:
        """Take in what is ready, and begin with the next."""
        if self._making is not None:
            snapshot, job, waited_for = self._making
            if not job.done:
                return
            self._making = None
            made = self._ready[snapshot.number] = job.fault or job.result()
            if waited_for or snapshot.number == self._wanted[0].number:
                self._newest = snapshot, made
            self._forget()
        for i, snapshot in enumerate(self._wanted):
            if snapshot.number not in self._ready:
                self._making = snapshot, self._jobs.submit(lambda _, one=snapshot: one.scene()), i == 0
                return

    def _forget(self) -> None:
        """Keep what was used last, as far as there is room; what is waited for in any case."""
        keep = {s.number for s in self._wanted[:1]}
        used = sum(map(_size, self._ready.values()))
        wanted = {s.number for s in self._wanted}
        for number in sorted(self._ready, key=lambda n: n in wanted):  # stable: the oldest first
            if used <= CACHE_BYTES and len(self._ready) <= 64:
                break
            if number not in keep:
                used -= _size(self._ready.pop(number))

    def close(self) -> None:
        """Give back all that is ready. Idempotent."""
        self._jobs.close()
        self._wanted, self._newest, self._making = [], None, None
        self._ready.clear()


def _size(made: GaussianScene | str) -> int:
    return 0 if isinstance(made, str) else scene_bytes(len(made), made.shN.shape[1])


class Player:
    """What is shown of a stream: what comes live, or a snapshot. The same for everybody who looks at it."""

    def __init__(self, recording: Recording, wake: Callable[[], None], *, live: bool = True) -> None:
        """`live`: whether there is something beside the recording."""
        self.recording = recording
        self.has_live = live
        self.position: Snapshot | None = None if live else recording.snapshots[-1]
        """What is to be shown; None: what comes live."""
        self.playing = False
        self._decoder = Decoder(wake)
        self._fed: int | None = None
        """The number of the snapshot that the view was given last."""
        self._next_at = 0.0
        self._direction = 1
        if not live:
            self._want()

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
        if self.position is not None:
            self._direction = 1 if chosen.number > self.position.number else -1
        else:
            self._direction = -1
        self.position = chosen
        self._want()

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
            self._decoder.want(())
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

    def _want(self) -> None:
        at = self.at
        assert at is not None and self.position is not None
        snapshots, d = self.recording.snapshots, self._direction
        ahead = [snapshots[p] for i in range(1, AHEAD + 1) if 0 <= (p := at + d * i) < len(snapshots)]
        behind = [snapshots[at - d]] if 0 <= at - d < len(snapshots) else []
        self._decoder.want([self.position, *ahead, *behind])

    def tick(self, now: float) -> None:
        """Play on; once in each turn of the loop."""
        if self.playing and self._fed == (self.position.number if self.position else None) and now >= self._next_at:
            self._next_at = max(self._next_at + PLAY_PERIOD, now + PLAY_PERIOD / 2)
            at = self.at
            assert at is not None
            if at + 1 < len(self.recording):
                self.seek(at + 1)
            else:
                self.playing = False
                if self.has_live:
                    self.live()

    # -- as a source -------------------------------------------------------------------------------------------

    def has_news(self) -> bool:
        """Whether `feed` would bring something new, while a snapshot is shown."""
        newest = self._decoder.newest()
        return self.position is not None and newest is not None and newest[0].number != self._fed

    def feed(self, view: View) -> bool:
        """Give the view the snapshot that is ready. Raises FileError for one that cannot be read."""
        newest = self._decoder.newest()
        if newest is None or self.position is None:
            return False
        snapshot, made = newest
        if isinstance(made, str):
            self._fed = snapshot.number
            if snapshot not in self.recording.snapshots:  # dropped while it was being read
                self.position = self.recording.snapshots[self.recording.place(snapshot)]
                self._want()
                return False
            raise ViewerError(made)
        taken = view.update(made)
        if taken:
            self._fed = snapshot.number
        return taken

    def again(self) -> None:
        """The view wants it anew."""
        self._fed = None

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._decoder.close()
