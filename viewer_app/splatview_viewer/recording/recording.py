"""Recordings: snapshots of one stream, within a limit, in memory or on disk.

When the limit is reached, every second one is dropped, and from then on half as many
are taken: the remaining ones always cover the whole run evenly. On disk there is a
folder for each stream, with a file for each snapshot and an index:

    recording.json          names of run and stream; of each snapshot its file, step,
                            version, time, count and bytes
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
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

import msgspec

from splatview_ipc.system.files import write_output
from splatview_viewer.blocks.unpacking import UnpackedScene
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.pictures import make_output_folder
from splatview_viewer.recording.packed import (
    packed_row,
    read_packed,
    read_packed_row,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from splatview_viewer.recording.packed import Packed
    from splatview_viewer.scene.scene import GaussianScene

INDEX = "recording.json"
DEFAULT_INTERVAL = 100
"""Versions between two snapshots, at first, unless the user names a number."""
MAX_SNAPSHOTS = 2000
"""Snapshots of one recording, in memory as well."""
_FORMAT = 2
"""Of the index; with 1, snapshots are all in the form of arrays."""
_MAX_INDEX = 4 << 20
"""Bytes of an index."""
_NAME = re.compile(r"\d{9}\.gaussians")
_TEMPORARY_SUFFIX = ".part"

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_Integer = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
_Text = Annotated[str, msgspec.Meta(max_length=200)]


class SceneSnapshot(msgspec.Struct, frozen=True):
    """One version of a scene, as the index describes it."""

    file: str
    """Name of nine digits and ".gaussians", also of a snapshot in memory."""
    step: _Integer
    """Step of the trainer, or the version if it names none."""
    version: _Integer
    time_ns: _Integer
    """Time of publication, ns since the epoch."""
    count: _Count
    """Number of Gaussians."""
    bytes: _Count

    @property
    def serial(self) -> int:
        """The number in the name; dropped snapshots count as well."""
        return int(self.file[:9])


class Index(msgspec.Struct, frozen=True):
    """Contents of a stream's folder."""

    format: int
    run: _Text
    """The run's name."""
    name: _Text
    """Name of the stream."""
    every: Annotated[float, msgspec.Meta(gt=0, lt=1e18)]
    """Versions, or steps, between two snapshots."""
    snapshots: list[SceneSnapshot]


def is_recording(path: Path) -> bool:
    """Return whether a folder is that of a recorded stream."""
    return os.path.isfile(path / INDEX)


def streams_in(path: Path) -> list[Path]:
    """Return the streams' folders in a folder: itself if it is one, [] without any."""
    if is_recording(path):
        return [path]
    try:
        return sorted(folder for folder in path.iterdir() if is_recording(folder))
    except OSError:
        return []


def read_index(folder: Path) -> Index:
    """Read the index of a stream's folder, the oldest snapshot first.

    Snapshots whose file is missing or of another size are left out.

    Raises:
        FileError: the index is missing, damaged, or of a later version.
    """
    path = folder / INDEX
    try:
        with open_regular(path) as f:
            text = f.read(_MAX_INDEX + 1)
        if len(text) > _MAX_INDEX:
            raise FileError(
                f"{path}: over {_MAX_INDEX:,} bytes, so it is no index of a recording"
            )
        index = msgspec.json.decode(text, type=Index)
    except OSError as e:
        raise FileError(f"{path}: cannot be read: {e.strerror or e}") from e
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise FileError(f"{path}: damaged: {e}") from e
    if not 1 <= index.format <= _FORMAT:
        raise FileError(
            f"{path}: format {index.format}, and this viewer reads {_FORMAT}: install "
            "a newer splatview"
        )
    intact: dict[str, SceneSnapshot] = {}
    for snapshot in index.snapshots[:MAX_SNAPSHOTS]:
        if _is_intact(folder, snapshot):
            intact[snapshot.file] = snapshot
    snapshots = [intact[name] for name in sorted(intact)]
    return msgspec.structs.replace(index, snapshots=snapshots)


def _is_intact(folder: Path, snapshot: SceneSnapshot) -> bool:
    """Return whether a snapshot's file exists and has the size of the index."""
    if not _NAME.fullmatch(snapshot.file):
        return False
    file = folder / snapshot.file
    return file.is_file() and file.lstat().st_size == snapshot.bytes


class StreamFolder:
    """The folder into which one stream is recorded: locked until it is closed.

    Methods but `close` are called from one thread at a time.
    """

    def __init__(self, root: Path, run: str, name: str) -> None:
        """Make a folder in `root`, for its owner alone (0700), or continue one.

        One that a run and stream of these names recorded before is continued, unless
        another program writes there or another user has made it. Raises OSError, and
        FileError for a folder that cannot be used.
        """
        self.run = run[:200]
        self.name = name[:200]
        self.previous = Index(_FORMAT, self.run, self.name, 1.0, [])
        """The index of what was recorded here before."""
        self._lock = -1
        make_output_folder(root, private=True)
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{run}-{name}").strip("-.")[:100]
        base = base or "stream"
        for attempt in range(1, 100):
            self.path = root / base
            if attempt > 1:
                self.path = root / f"{base}-{attempt}"
            if not self._open_own():
                continue
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._continue():
                    return
            except BlockingIOError:
                # Another program writes there.
                pass
            except BaseException:
                self.close()
                raise
            self.close()
        raise FileError(
            f"{root / base}: it and 98 like it are being written by others; record "
            "into another folder"
        )

    def _continue(self) -> bool:
        """Continue the recording in the folder; return False for another stream's."""
        index = self.previous
        if is_recording(self.path):
            index = read_index(self.path)
        if index.run != self.run or index.name != self.name:
            return False
        self.previous = index
        indexed = {snapshot.file for snapshot in index.snapshots}
        # A recording that ended while it was written leaves files.
        for path in self.path.iterdir():
            is_unindexed = _NAME.fullmatch(path.name) and path.name not in indexed
            if is_unindexed or path.name.endswith(_TEMPORARY_SUFFIX):
                path.unlink(missing_ok=True)
        return True

    def _open_own(self) -> bool:
        """Make `path` or open it; return False for one that is not the user's folder.

        Where others write, as in /tmp, they can make a link or a folder first.
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
        interval: float,
        snapshots: list[SceneSnapshot],
        dropped: Iterable[SceneSnapshot] = (),
    ) -> None:
        """Write the index, and then remove the files of dropped snapshots.

        Raises OSError.
        """
        index = Index(_FORMAT, self.run, self.name, interval, snapshots)
        self.check_in_place()
        text = msgspec.json.format(msgspec.json.encode(index), indent=1)
        write_output(self.path / INDEX, text, private=True)
        for snapshot in dropped:
            (self.path / snapshot.file).unlink(missing_ok=True)

    def close(self) -> None:
        """Unlock the folder, for other programs. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


class Recording:
    """The snapshots of a stream in the order in which they were taken.

    Belongs to the loop's thread, but for `scene` and `row`. Steps may go back, when a run was
    started again.
    """

    def __init__(
        self,
        interval: float = 1.0,
        *,
        limit: int = 0,
        folder: StreamFolder | None = None,
    ) -> None:
        """Start a recording, or continue that of a folder.

        Args:
            interval: versions, or steps, between two snapshots.
            limit: bytes of all snapshots.
            folder: the folder of the snapshots; None: they are in memory.
        """
        self.interval = interval
        self.limit = limit
        self.folder = folder
        self.path: Path | None = None
        """The folder that is read; None: they are in memory."""
        self.snapshots: list[SceneSnapshot] = []
        self.changes = 0
        """Counts changes of the snapshots."""
        self.live_time_ns = 0
        """When the live version that is shown was published; 0: there is none."""
        self.gaps: list[tuple[int, int]] = []
        """Steps before and after which snapshots were missed: the stream was not shown."""
        self._packed: dict[SceneSnapshot, Packed] = {}
        if folder is not None:
            self.path = folder.path
            self.snapshots = folder.previous.snapshots
            self.interval = max(interval, folder.previous.every)

    @classmethod
    def opened(cls, path: Path) -> Recording:
        """Open the recording in a stream's folder, for reading.

        Raises FileError where there is none.
        """
        index = read_index(path)
        if not index.snapshots:
            raise FileError(f"{path}: no snapshot in it that is whole")
        recording = cls(index.every)
        recording.path = path
        recording.snapshots = index.snapshots
        return recording

    def __len__(self) -> int:
        return len(self.snapshots)

    @property
    def nbytes(self) -> int:
        """Bytes of all snapshots."""
        return sum(snapshot.bytes for snapshot in self.snapshots)

    @property
    def next_file(self) -> str:
        """The name of the next snapshot's file."""
        if self.snapshots:
            serial = self.snapshots[-1].serial + 1
        else:
            serial = 1
        return f"{serial:09}.gaussians"

    def add(
        self, snapshot: SceneSnapshot, packed: Packed | None = None
    ) -> list[SceneSnapshot]:
        """Add a snapshot; return those that are dropped for it.

        Args:
            packed: its scene, if the recording is in memory.
        """
        self.snapshots.append(snapshot)
        if packed is not None:
            self._packed[snapshot] = packed
        return self.fit()

    def fit(self) -> list[SceneSnapshot]:
        """Drop snapshots that are over the limit, and return them.

        The first and the newest stay as long as any others.
        """
        dropped: list[SceneSnapshot] = []
        while len(self) > 1 and (self.nbytes > self.limit or len(self) > MAX_SNAPSHOTS):
            surplus = dict.fromkeys(self.snapshots[1:-1:2] or self.snapshots[:1])
            if len(self) > 2:
                self.interval *= 2
            self.snapshots = [s for s in self.snapshots if s not in surplus]
            dropped += surplus
        for snapshot in dropped:
            self._packed.pop(snapshot, None)
        self.changes += 1
        return dropped

    @property
    def past_count(self) -> int:
        """The number of snapshots that are older than the live version."""
        if not self.live_time_ns:
            return len(self)
        return sum(s.time_ns < self.live_time_ns for s in self.snapshots)

    def index_of(self, snapshot: SceneSnapshot) -> int:
        """Return the index of a snapshot, or if it was dropped, of the nearest one."""
        serial = snapshot.serial
        index = bisect.bisect_left(self.snapshots, serial, key=attrgetter("serial"))
        nearest = range(max(index - 1, 0), min(index + 1, len(self)))
        return min(nearest, key=lambda i: abs(self.snapshots[i].serial - serial))

    def scene(self, snapshot: SceneSnapshot) -> GaussianScene:
        """Return the scene of a snapshot, in host memory; from any thread.

        Raises as `unpacked`.
        """
        return self.unpacked(snapshot).scene

    def unpacked(self, snapshot: SceneSnapshot) -> UnpackedScene:
        """Return the scene of a snapshot with its blocks; from any thread.

        Raises FileError where its file is gone or damaged, KeyError where it was
        dropped meanwhile.
        """
        if self.path is None:
            packed = self._packed[snapshot]
        else:
            packed = read_packed(self.path / snapshot.file)
        notes = (f"step {snapshot.step:,}", "recorded")
        scene = unpack(packed, version=snapshot.version, notes=notes)
        return UnpackedScene(scene, packed.blocks)

    def row(self, snapshot: SceneSnapshot, index: int) -> GaussianScene:
        """Return one Gaussian of a snapshot as a scene; from any thread.

        Raises as `unpacked`.
        """
        if self.path is None:
            return packed_row(self._packed[snapshot], index)
        return read_packed_row(self.path / snapshot.file, index)
