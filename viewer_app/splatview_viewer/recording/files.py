"""Recordings on disk: a folder for each stream, with a file for each snapshot and an index.

    recording.json          names of run and stream; of each snapshot its file, step, version, time, count and bytes
    000000042.gaussians     a packed scene (`recording.packed`)

A file that the index does not name is no part of the recording. Every file is written beside its place and then moved
there, so that none is ever half written.
"""

from __future__ import annotations

import fcntl
import os
import re
from typing import TYPE_CHECKING, Annotated

import msgspec

from splatview_ipc.system.files import write_output
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.pictures import make_output_folder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

INDEX = "recording.json"
MOST_SNAPSHOTS = 2000
"""Of one recording, in memory as well."""
_FORMAT = 1
_MOST_INDEX = 4 << 20
"""Bytes."""
_NAME = re.compile(r"\d{9}\.gaussians")
_PART = ".part"

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_Whole = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
_Text = Annotated[str, msgspec.Meta(max_length=200)]


class Line(msgspec.Struct, frozen=True):
    """One snapshot in the index."""

    file: str
    step: _Whole
    version: _Whole
    time_ns: _Whole
    count: _Count
    bytes: _Count


class Index(msgspec.Struct, frozen=True):
    """What a folder holds."""

    format: int
    run: _Text
    """What the run is called."""
    name: _Text
    """What the stream is called."""
    every: float
    """Versions, or steps, between two snapshots."""
    snapshots: list[Line]


def is_recording(path: Path) -> bool:
    """Return whether a folder is that of a recorded stream."""
    return os.path.isfile(path / INDEX)


def streams_in(path: Path) -> list[Path]:
    """Return the streams' folders in what was recorded; the folder itself if it is one; [] for anything else."""
    if is_recording(path):
        return [path]
    try:
        return sorted(p for p in path.iterdir() if is_recording(p))
    except OSError:
        return []


def read_index(folder: Path) -> Index:
    """Return what a stream's folder holds, the oldest first, without what is missing or of another size.

    Raises FileError for an index that is missing, damaged, or of a later version.
    """
    path = folder / INDEX
    try:
        with open_regular(path) as f:
            text = f.read(_MOST_INDEX + 1)
        if len(text) > _MOST_INDEX:
            raise FileError(f"{path}: over {_MOST_INDEX:,} bytes, so it is no index of a recording")
        index = msgspec.json.decode(text, type=Index)
    except OSError as e:
        raise FileError(f"{path}: cannot be read: {e.strerror or e}") from e
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise FileError(f"{path}: damaged: {e}") from e
    if index.format != _FORMAT:
        raise FileError(f"{path}: format {index.format}, and this viewer reads {_FORMAT}: install a newer splatview")
    if not 0 < index.every < 1e18:
        raise FileError(f"{path}: damaged: a snapshot every {index.every} steps")
    there = {line.file: line for line in index.snapshots[:MOST_SNAPSHOTS] if _NAME.fullmatch(line.file)
             and _size(folder / line.file) == line.bytes}
    return msgspec.structs.replace(index, snapshots=[there[name] for name in sorted(there)])


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return -1


class StreamFolder:
    """The folder into which one stream is being recorded: locked until it is closed.

    Methods but `close` are called from one thread at a time.
    """

    def __init__(self, root: Path, run: str, name: str) -> None:
        """Make a folder in `root`, for its owner alone (0700); one that was recorded before by a run and stream of
        these names is continued, unless another program writes there. Raises OSError, and FileError for a folder that
        cannot be used."""
        self.run, self.name = run[:200], name[:200]
        self.before = Index(_FORMAT, self.run, self.name, 1.0, [])
        """What was recorded here before."""
        make_output_folder(root)
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{run}-{name}").strip("-.")[:100] or "stream"
        for number in range(1, 100):
            self.path = root / (base if number == 1 else f"{base}-{number}")
            self.path.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found = read_index(self.path) if is_recording(self.path) else self.before
                if (found.run, found.name) == (self.run, self.name):
                    self.before = found
                    self._tidy()
                    return
            except BlockingIOError:
                pass
            except BaseException:
                self.close()
                raise
            self.close()
        raise FileError(f"{root / base}: it and 98 like it are being written by others; record into another folder")

    def _tidy(self) -> None:
        """Remove what a recording that ended in the middle of writing has left."""
        named = {line.file for line in self.before.snapshots}
        for path in self.path.iterdir():
            if (_NAME.fullmatch(path.name) and path.name not in named) or path.name.endswith(_PART):
                path.unlink(missing_ok=True)

    def file(self, number: int) -> Path:
        """Return the path of snapshot `number`."""
        return self.path / f"{number:09}.gaussians"

    def write_index(self, every: float, lines: list[Line], dropped: Iterable[Path] = ()) -> None:
        """Write what there is, and then remove what has been dropped. Raises OSError."""
        text = msgspec.json.format(msgspec.json.encode(Index(_FORMAT, self.run, self.name, every, lines)), indent=1)
        write_output(self.path / INDEX, text)
        for path in dropped:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let others write here. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1
