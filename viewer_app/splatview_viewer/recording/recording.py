"""The snapshots of one stream, from the first version on, as many as a limit allows.

When it is reached, every second one is dropped, and from then on half as many are taken: what is left always covers
everything evenly.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import FileError, ViewerError
from splatview_viewer.formats.pictures import make_output_folder
from splatview_viewer.recording.files import MOST_SNAPSHOTS, Line, read_index
from splatview_viewer.recording.packed import read_packed, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.recording.files import StreamFolder
    from splatview_viewer.recording.packed import Packed
    from splatview_viewer.scene.scene import GaussianScene


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One version of the scene, in memory or in a file."""

    number: int
    """Counts the snapshots of a recording, those that were dropped as well."""
    step: int
    """The trainer's, or if it says none the version."""
    version: int
    time_ns: int
    """When it was published."""
    count: int
    """Gaussians."""
    nbytes: int
    """That are kept."""
    packed: Packed | None = None
    file: Path | None = None

    def scene(self) -> GaussianScene:
        """Return it again, in host memory. From any thread. Raises FileError where its file is gone or damaged."""
        packed = self.packed if self.file is None else read_packed(self.file)
        assert packed is not None
        if len(packed) != self.count:
            raise FileError(f"{self.file}: holds {len(packed):,} Gaussians, and the index says {self.count:,}")
        return unpack(packed, version=self.version, notes=(f"step {self.step:,}", "recorded"))


class Recording:
    """The snapshots in the order in which they were taken. Belongs to the loop's thread, but for what a snapshot does.

    Steps may go back, when a run was started again.
    """

    def __init__(self, every: float = 1.0, *, limit: int = 0, folder: StreamFolder | None = None) -> None:
        """`every`: versions, or steps, between two snapshots. `limit`: bytes. `folder`: where they lie, if not in
        memory; what lies there already is a part of it."""
        self.snapshots: list[Snapshot] = []
        self.every = every
        self.limit = limit
        self.folder = folder
        self.changes = 0
        self.nbytes = 0
        if folder is not None and folder.before.snapshots:
            self._take_in(folder.path, folder.before.snapshots)
            self.every = max(every, folder.before.every)

    @classmethod
    def opened(cls, path: Path) -> Recording:
        """What was recorded in a stream's folder, to be looked at. Raises FileError if nothing is there."""
        index = read_index(path)
        if not index.snapshots:
            raise FileError(f"{path}: no snapshot in it that is whole")
        made = cls(index.every)
        made._take_in(path, index.snapshots)
        return made

    def _take_in(self, path: Path, lines: list[Line]) -> None:
        self.snapshots = [Snapshot(int(line.file[:9]), line.step, line.version, line.time_ns, line.count, line.bytes,
                                   file=path / line.file) for line in lines]
        self.nbytes = sum(s.nbytes for s in self.snapshots)

    def __len__(self) -> int:
        return len(self.snapshots)

    @property
    def next_number(self) -> int:
        return self.snapshots[-1].number + 1 if self.snapshots else 1

    def add(self, snapshot: Snapshot) -> list[Snapshot]:
        """Take one more; those that are dropped for it."""
        self.snapshots.append(snapshot)
        self.nbytes += snapshot.nbytes
        return self.fit()

    def fit(self) -> list[Snapshot]:
        """Drop what is over the limit; what is dropped. The first and the newest stay as long as any others."""
        dropped: list[Snapshot] = []
        while len(self) > 1 and (self.nbytes > self.limit or len(self) > MOST_SNAPSHOTS):
            if len(self) == 2:
                out = self.snapshots[:1]
            else:
                last = self.snapshots[-1]
                out = [s for s in self.snapshots[1::2] if s is not last]
                self.every *= 2
            gone = {s.number for s in out}
            self.snapshots = [s for s in self.snapshots if s.number not in gone]
            self.nbytes -= sum(s.nbytes for s in out)
            dropped += out
        self.changes += 1
        return dropped

    def lines(self) -> list[Line]:
        """Of the index."""
        return [Line(s.file.name, s.step, s.version, s.time_ns, s.count, s.nbytes)
                for s in self.snapshots if s.file is not None]

    def place(self, snapshot: Snapshot) -> int:
        """Return its place, or if it was dropped that of the one nearest to it."""
        at = bisect.bisect_left(self.snapshots, snapshot.number, key=lambda s: s.number)
        near = range(max(at - 1, 0), min(at + 1, len(self)))
        return min(near, key=lambda i: abs(self.snapshots[i].number - snapshot.number))


EVERY = 100
"""Versions between two snapshots, at first, if nothing else is asked for."""


@dataclass(frozen=True)
class RecordOptions:
    """Snapshots of scenes that are shown, in memory; or of all scenes that runs publish, on disk."""

    folder: Path | None = None
    every: int | None = None
    """Steps between two snapshots, at first; None: EVERY versions, or a few seconds."""
    memory_mb: int = 512
    """For all scenes together; 0: none is recorded."""
    disk_mb: int = 20_000
    """The same of what goes to the folder."""

    def check(self, command: str) -> None:
        """Raise ViewerError for numbers that make no sense."""
        if self.every is not None and self.every < 1:
            raise ViewerError(f"{command}: --record-every is {self.every}, not a number of steps from 1 on")
        if self.memory_mb < 0:
            raise ViewerError(f"{command}: --record-memory is {self.memory_mb}, not a number of MB from 0 (none) on")
        if self.disk_mb < 1:
            raise ViewerError(f"{command}: --record-disk is {self.disk_mb}, not a number of MB from 1 on")
        if self.folder is not None and self.folder.exists() and not self.folder.is_dir():
            raise ViewerError(f"{command}: --record {self.folder} is a file; name a folder, which is made if need be")
        if self.folder is not None:
            try:
                make_output_folder(self.folder)
            except OSError as e:
                raise ViewerError(f"{command}: --record: {e}") from e

    @property
    def on(self) -> bool:
        return self.folder is not None or self.memory_mb > 0
