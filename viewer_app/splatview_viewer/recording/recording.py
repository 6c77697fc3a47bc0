"""Recordings: the snapshots of one stream, from the first version on, as many as a
limit allows; in memory or on disk.

When the limit is reached, every second one is dropped, and from then on half as many
are taken: what is left always covers everything evenly. On disk there is a folder for
each stream, with a file for each snapshot and an index:

    recording.json          names of run and stream; of each snapshot its file, step, version, time, count and bytes
    000000042.gaussians     a packed scene (`recording.packed`)

A file that the index does not name is no part of the recording. Every file is written
beside its place and then moved there, so that none is ever half written.
"""

from __future__ import annotations

import bisect
import fcntl
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec

from splatview_ipc.system.files import write_output
from splatview_viewer.core.errors import FileError, ViewerError
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.pictures import make_output_folder
from splatview_viewer.recording.packed import read_packed, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from splatview_viewer.core.view import ShownView
    from splatview_viewer.recording.packed import Packed
    from splatview_viewer.scene.scene import GaussianScene

INDEX = "recording.json"
DEFAULT_INTERVAL = 100
"""Versions between two snapshots, at first, if nothing else is asked for."""
MOST_SNAPSHOTS = 2000
"""Of one recording, in memory as well."""
PLAY_PERIOD = 0.1
"""Seconds between two snapshots while it plays."""
_FORMAT = 1
_MOST_INDEX = 4 << 20
"""Bytes."""
_NAME = re.compile(r"\d{9}\.gaussians")
_PART = ".part"

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_Whole = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
_Text = Annotated[str, msgspec.Meta(max_length=200)]


class SceneSnapshot(msgspec.Struct, frozen=True):
    """One version of a scene, as the index describes it."""

    file: str
    """Its number of nine digits, also of one in memory, and ".gaussians"."""
    step: _Whole
    """The trainer's, or if it says none the version."""
    version: _Whole
    time_ns: _Whole
    """Time of publication, ns since the epoch."""
    count: _Count
    """Gaussians."""
    bytes: _Count

    @property
    def serial(self) -> int:
        """Counts the snapshots of a recording, those that were dropped as well."""
        return int(self.file[:9])


class Index(msgspec.Struct, frozen=True):
    """Contents of a folder."""

    format: int
    run: _Text
    """The run's name."""
    name: _Text
    """The stream's."""
    every: Annotated[float, msgspec.Meta(gt=0, lt=1e18)]
    """Versions, or steps, between two snapshots."""
    snapshots: list[SceneSnapshot]


def is_recording(path: Path) -> bool:
    """Return whether a folder is that of a recorded stream."""
    return os.path.isfile(path / INDEX)


def streams_in(path: Path) -> list[Path]:
    """Return the streams' folders in what was recorded; the folder itself if it is one;
    [] for anything else.
    """
    if is_recording(path):
        return [path]
    try:
        return sorted(p for p in path.iterdir() if is_recording(p))
    except OSError:
        return []


def read_index(folder: Path) -> Index:
    """Return what a stream's folder holds, the oldest first, without what is missing or
    of another size.

    Raises FileError for an index that is missing, damaged, or of a later version.
    """
    path = folder / INDEX
    try:
        with open_regular(path) as f:
            text = f.read(_MOST_INDEX + 1)
        if len(text) > _MOST_INDEX:
            raise FileError(
                f"{path}: over {_MOST_INDEX:,} bytes, so it is no index of a recording"
            )
        index = msgspec.json.decode(text, type=Index)
    except OSError as e:
        raise FileError(f"{path}: cannot be read: {e.strerror or e}") from e
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise FileError(f"{path}: damaged: {e}") from e
    if index.format != _FORMAT:
        raise FileError(
            f"{path}: format {index.format}, and this viewer reads {_FORMAT}: install "
            "a newer splatview"
        )
    there = {
        line.file: line
        for line in index.snapshots[:MOST_SNAPSHOTS]
        if _NAME.fullmatch(line.file)
        and (file := folder / line.file).is_file()
        and file.lstat().st_size == line.bytes
    }
    return msgspec.structs.replace(
        index, snapshots=[there[name] for name in sorted(there)]
    )


class StreamFolder:
    """The folder into which one stream is being recorded: locked until it is closed.

    Methods but `close` are called from one thread at a time.
    """

    def __init__(self, root: Path, run: str, name: str) -> None:
        """Make a folder in `root`, for its owner alone (0700); one that was recorded
        before by a run and stream of these names is continued, unless another program
        writes there or another user has made it. Raises OSError, and FileError for a
        folder that cannot be used.
        """
        self.run = run[:200]
        self.name = name[:200]
        self.previous = Index(_FORMAT, self.run, self.name, 1.0, [])
        """The index of what was recorded here before."""
        self._lock = -1
        make_output_folder(root, private=True)
        base = (
            re.sub(r"[^A-Za-z0-9._-]+", "-", f"{run}-{name}").strip("-.")[:100]
            or "stream"
        )
        for number in range(1, 100):
            self.path = root / (base if number == 1 else f"{base}-{number}")
            if not self._open_own():
                continue
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_recording(self.path):
                    found = read_index(self.path)
                else:
                    found = self.previous
                if (found.run, found.name) == (self.run, self.name):
                    self.previous = found
                    named = {line.file for line in found.snapshots}
                    for path in (
                        self.path.iterdir()
                    ):  # what a recording that ended while it was written has left
                        if (
                            _NAME.fullmatch(path.name) and path.name not in named
                        ) or path.name.endswith(_PART):
                            path.unlink(missing_ok=True)
                    return
            except BlockingIOError:
                pass
            except BaseException:
                self.close()
                raise
            self.close()
        raise FileError(
            f"{root / base}: it and 98 like it are being written by others; record "
            "into another folder"
        )

    def _open_own(self) -> bool:
        """Make `path` or open it; return False for a link, a file, or another user's
        folder.

        Where others write, as in /tmp, they can take the name first.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            if not stat.S_ISDIR(self.path.lstat().st_mode):
                return False
        self._lock = os.open(self.path, flags)
        if os.fstat(self._lock).st_uid == os.getuid():
            return True
        self.close()
        return False

    def check_in_place(self) -> None:
        """Raise OSError unless `path` still names the folder that was opened.

        A user who can rename it could put another one there.
        """
        if not os.path.samestat(self.path.lstat(), os.fstat(self._lock)):
            raise OSError(
                f"{self.path} was replaced by another folder; nothing more is written "
                "there"
            )

    def write_index(
        self,
        every: float,
        snapshots: list[SceneSnapshot],
        dropped: Iterable[SceneSnapshot] = (),
    ) -> None:
        """Write what there is, and then remove what has been dropped.

        Raises OSError.
        """
        index = Index(_FORMAT, self.run, self.name, every, snapshots)
        self.check_in_place()
        write_output(
            self.path / INDEX,
            msgspec.json.format(msgspec.json.encode(index), indent=1),
            private=True,
        )
        for snapshot in dropped:
            (self.path / snapshot.file).unlink(missing_ok=True)

    def close(self) -> None:
        """Let others write here. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


class Recording:
    """The snapshots in the order in which they were taken.

    Belongs to the loop's thread, but for `scene`.

    Steps may go back, when a run was started again.
    """

    def __init__(
        self, every: float = 1.0, *, limit: int = 0, folder: StreamFolder | None = None
    ) -> None:
        """`every`: versions, or steps, between two snapshots.

        `limit`: bytes. `folder`: where they are kept, if not in memory; what is there
        already is a part of it.
        """
        self.interval = every
        self.limit = limit
        self.folder = folder
        self.path: Path | None = None
        """The folder that is read; None: they are in memory."""
        self.snapshots: list[SceneSnapshot] = []
        self.changes = 0
        self._packed: dict[SceneSnapshot, Packed] = {}
        if folder is not None:
            self.path = folder.path
            self.snapshots = folder.previous.snapshots
            self.interval = max(every, folder.previous.every)

    @classmethod
    def opened(cls, path: Path) -> Recording:
        """Return what was recorded in a stream's folder, to be looked at.

        Raises FileError if nothing is there.
        """
        index = read_index(path)
        if not index.snapshots:
            raise FileError(f"{path}: no snapshot in it that is whole")
        made = cls(index.every)
        made.path = path
        made.snapshots = index.snapshots
        return made

    def __len__(self) -> int:
        return len(self.snapshots)

    @property
    def nbytes(self) -> int:
        return sum(snapshot.bytes for snapshot in self.snapshots)

    @property
    def next_file(self) -> str:
        """The name of the next snapshot's file."""
        return f"{self.snapshots[-1].serial + 1 if self.snapshots else 1:09}.gaussians"

    def add(
        self, snapshot: SceneSnapshot, packed: Packed | None = None
    ) -> list[SceneSnapshot]:
        """Take one more, `packed` where they are in memory; return those that are
        dropped for it.
        """
        self.snapshots.append(snapshot)
        if packed is not None:
            self._packed[snapshot] = packed
        return self.fit()

    def fit(self) -> list[SceneSnapshot]:
        """Drop what is over the limit, and return it.

        The first and the newest stay as long as any others.
        """
        dropped: list[SceneSnapshot] = []
        while len(self) > 1 and (
            self.nbytes > self.limit or len(self) > MOST_SNAPSHOTS
        ):
            out = dict.fromkeys(self.snapshots[1:-1:2] or self.snapshots[:1])
            self.interval *= 2 if len(self) > 2 else 1
            self.snapshots = [s for s in self.snapshots if s not in out]
            dropped += out
        for snapshot in dropped:
            self._packed.pop(snapshot, None)
        self.changes += 1
        return dropped

    def index_of(self, snapshot: SceneSnapshot) -> int:
        """Return its place, or if it was dropped that of the one nearest to it."""
        at = bisect.bisect_left(self.snapshots, snapshot.serial, key=lambda s: s.serial)
        near = range(max(at - 1, 0), min(at + 1, len(self)))
        return min(near, key=lambda i: abs(self.snapshots[i].serial - snapshot.serial))

    def scene(self, snapshot: SceneSnapshot) -> GaussianScene:
        """Return a snapshot again, in host memory.

        From any thread. Raises FileError where its file is gone or damaged, KeyError
        where it was dropped meanwhile.
        """
        if self.path is None:
            packed = self._packed[snapshot]
        else:
            packed = read_packed(self.path / snapshot.file)
        return unpack(
            packed,
            version=snapshot.version,
            notes=(f"step {snapshot.step:,}", "recorded"),
        )


class Player:
    """The part of a stream that is shown: what comes live, or a snapshot.

    The same for all who look at the stream.
    """

    def __init__(
        self, recording: Recording, wake: Callable[[], None], *, live: bool = True
    ) -> None:
        """`live`: there is something beside the recording.

        `wake`: called from another thread when one is ready.
        """
        self.recording = recording
        self.has_live = live
        self.position: SceneSnapshot | None = None if live else recording.snapshots[-1]
        """The snapshot to be shown; None: what comes live."""
        self.playing = False
        self._jobs = Jobs("splatview history", wake)
        self._ready: tuple[SceneSnapshot, GaussianScene | str] | None = None
        """The scene that became ready last, or the reason why there is none."""
        self._making: tuple[SceneSnapshot, Job[GaussianScene]] | None = None
        """The one that is being made ready."""
        self._fed: SceneSnapshot | None = None
        """The snapshot that the view was given last."""
        self._next_at = 0.0
        self._make()

    @property
    def index(self) -> int | None:
        """The place of what is shown among the snapshots; None: live."""
        return None if self.position is None else self.recording.index_of(self.position)

    def seek(self, place: int) -> None:
        """Show the snapshot at this place, or the first or last."""
        snapshots = self.recording.snapshots
        if not snapshots:
            return
        self.position = snapshots[min(max(place, 0), len(snapshots) - 1)]
        self._make()

    def move(self, by: int) -> None:
        """Show the snapshot so many places on. Before what is live lies the last."""
        self.playing = False
        at = self.index
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
            self.position = None
            self._fed = None
            self.close()
        else:
            self.seek(len(self.recording) - 1)

    def end(self) -> None:
        """Nothing comes live any more, and what came last is not to be had: the newest
        snapshot takes its place.
        """
        self.has_live = False
        self.live()

    def play(self, on: bool) -> None:
        """Go from one snapshot to the next; from the first if it is at the end."""
        self.playing = on and len(self.recording) > 1
        if self.playing and self.index in (None, len(self.recording) - 1):
            self.seek(0)

    def tick(self, now: float) -> None:
        """Play on; once in each turn of the loop."""
        if self.playing and self._fed is self.position and now >= self._next_at:
            self._next_at = max(self._next_at + PLAY_PERIOD, now + PLAY_PERIOD / 2)
            at = self.index
            assert at is not None
            if at + 1 < len(self.recording):
                self.seek(at + 1)
            else:
                self.move(1)

    def _make(self) -> None:
        """Take in the snapshot that is ready, and begin with the one that is to be
        shown.
        """
        if self._making is not None:
            snapshot, job = self._making
            if not job.done:
                return
            self._ready = (snapshot, job.fault or job.result())
            self._making = None
        wanted = self.position
        if wanted is not None and (self._ready is None or self._ready[0] is not wanted):
            self._making = (
                wanted,
                self._jobs.submit(lambda _: self.recording.scene(wanted)),
            )

    def close(self) -> None:
        """Give back all that is ready. Idempotent."""
        self._jobs.close()
        self._ready = None
        self._making = None

    # -- as a source -------------------------------------------------------------------

    def has_new_value(self) -> bool:
        """Return whether `feed` would bring something new, while a snapshot is shown."""
        self._make()
        return (
            self.position is not None
            and self._ready is not None
            and self._ready[0] is not self._fed
        )

    def feed(self, view: ShownView) -> bool:
        """Give the view the snapshot that is ready.

        Raises ViewerError for one that cannot be read.
        """
        if self._ready is None or self.position is None:
            return False
        snapshot, made = self._ready
        if not isinstance(made, str):
            taken = view.update(made)
            if taken:
                self._fed = snapshot
            return taken
        self._fed = snapshot
        if snapshot in self.recording.snapshots:
            raise ViewerError(made)
        self.seek(
            self.recording.index_of(snapshot)
        )  # it was dropped while it was being read
        return False

    def resend(self) -> None:
        """Bring the snapshot that is shown once more."""
        self._fed = None


@dataclass(frozen=True)
class RecordOptions:
    """Snapshots of scenes that are shown, in memory; or of all scenes that runs
    publish, on disk.
    """

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
            raise ViewerError(
                f"{command}: --record-every is {self.every}, not a number of steps "
                "from 1 on"
            )
        if self.memory_mb < 0:
            raise ViewerError(
                f"{command}: --record-memory is {self.memory_mb}, not a number of MB "
                "from 0 (none) on"
            )
        if self.disk_mb < 1:
            raise ViewerError(
                f"{command}: --record-disk is {self.disk_mb}, not a number of MB from "
                "1 on"
            )
        if self.folder is not None:
            try:
                make_output_folder(self.folder, private=True)
            except OSError as e:
                raise ViewerError(f"{command}: --record: {e}") from e

    @property
    def on(self) -> bool:
        return self.folder is not None or self.memory_mb > 0
