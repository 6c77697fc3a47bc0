"""Snapshots on disk: a folder for each stream, with one file for each snapshot and an index that says what there is.

    recording.json          whose stream it is, and of each snapshot its file, step, version, time, count and bytes
    000000042.gaussians     8 bytes SVSCENE1, the length of the header as uint32, the header as JSON, then the arrays of
                            `packed.layout` one after the other, little-endian

What the index does not name does not belong to the recording. Every file is written beside its place and then moved
there, so that none is ever half written. Whoever reads checks sizes before memory is taken; nothing is unpickled.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST
from splatview_ipc.system.files import output_file, write_output
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats import check_memory, scene_bytes
from splatview_viewer.formats.pictures import make_output_folder
from splatview_viewer.recording.packed import Packed, layout, packed_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

INDEX = "recording.json"
MOST_SNAPSHOTS = 2000
"""Of one recording, in memory as well."""
_MAGIC = b"SVSCENE1"
_FORMAT = 1
_MOST_INDEX, _MOST_HEADER = 4 << 20, 4096
"""Bytes."""
_NAME = re.compile(r"\d{9}\.gaussians")
_PART = ".part"

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_Whole = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
_Text = Annotated[str, msgspec.Meta(max_length=200)]


class _Header(msgspec.Struct, frozen=True):
    """Of one snapshot's file."""

    count: _Count
    coefficients: int
    """Of spherical harmonics beyond degree 0, for each Gaussian."""
    sh_degree: int
    activated: bool
    antialiased: bool
    background: tuple[float, float, float] | None = None
    wide: bool = False
    """Whether positions are float64."""


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


def write_packed(path: Path, packed: Packed) -> int:
    """Write one snapshot; how many bytes it takes. Raises OSError."""
    higher, wide = packed.arrays["shN"], packed.arrays["means"].dtype == np.float64
    header = msgspec.json.encode(_Header(len(packed), higher.shape[1], packed.sh_degree, packed.activated,
                                         packed.antialiased, packed.background, wide))
    with output_file(path) as out:
        out.file.write(_MAGIC + struct.pack("<I", len(header)) + header)
        for name in layout(len(packed), higher.shape[1], packed.activated):
            out.file.write(np.ascontiguousarray(packed.arrays[name]).data if packed.arrays[name].size else b"")
        return out.file.tell()


def read_packed(path: Path) -> Packed:
    """A snapshot. Raises FileError for what is missing, damaged or none; takes only the memory that its size allows."""
    try:
        with open_regular(path) as f:
            size = os.fstat(f.fileno()).st_size
            start = f.read(len(_MAGIC) + 4)
            if len(start) != len(_MAGIC) + 4 or not start.startswith(_MAGIC):
                raise FileError(f"{path}: no snapshot of a recording")
            (length,) = struct.unpack_from("<I", start, len(_MAGIC))
            if length > _MOST_HEADER:
                raise FileError(f"{path}: damaged: a header of {length:,} bytes; at most {_MOST_HEADER:,}")
            header = msgspec.json.decode(f.read(length), type=_Header)
            if header.coefficients not in SH_REST or not 0 <= header.sh_degree < len(SH_REST):
                raise FileError(f"{path}: damaged: {header.coefficients} coefficients, degree {header.sh_degree}")
            shape = header.count, header.coefficients, header.activated, header.wide
            wanted, needed = layout(*shape), packed_bytes(*shape)
            if size != len(start) + length + needed:
                raise FileError(f"{path}: damaged: {size:,} bytes, and {header.count:,} Gaussians take "
                                f"{len(start) + length + needed:,}")
            # What is read, and what it becomes to be drawn (`packed.unpack`).
            check_memory(needed + scene_bytes(header.count, header.coefficients), f"{path}: {header.count:,} Gaussians")
            arrays = {}
            for name, (extents, dtype) in wanted.items():
                arrays[name] = np.fromfile(f, dtype.newbyteorder("<"), int(np.prod(extents, dtype=np.int64)))
                arrays[name] = arrays[name].reshape(extents)  # raises if it was cut off meanwhile
    except OSError as e:
        raise FileError(f"{path}: cannot be read: {e.strerror or e}") from e
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as e:
        raise FileError(f"{path}: damaged: {e}") from e
    except MemoryError as e:
        raise FileError(f"{path}: not enough memory to load it") from e
    background = header.background
    if background is not None and not all(0 <= v <= 1 for v in background):
        background = None
    return Packed(arrays, header.sh_degree, header.activated, header.antialiased, background)


def is_recording(path: Path) -> bool:
    """Whether a folder is one stream's."""
    return os.path.isfile(path / INDEX)


def streams_in(path: Path) -> list[Path]:
    """The streams' folders in what was recorded; the folder itself if it is one; [] for anything else."""
    if is_recording(path):
        return [path]
    try:
        return sorted(p for p in path.iterdir() if is_recording(p))
    except OSError:
        return []


def read_index(folder: Path) -> Index:
    """What a stream's folder holds, the oldest first, without what is missing or of another size.

    Raises FileError for an index that is missing, damaged, or of a later version.
    """
    path = folder / INDEX
    try:
        with open_regular(path) as f:
            text = f.read(_MOST_INDEX + 1)
    except OSError as e:
        raise FileError(f"{path}: cannot be read: {e.strerror or e}") from e
    if len(text) > _MOST_INDEX:
        raise FileError(f"{path}: over {_MOST_INDEX:,} bytes, so it is no index of a recording")
    try:
        index = msgspec.json.decode(text, type=Index)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise FileError(f"{path}: damaged: {e}") from e
    if index.format != _FORMAT:
        raise FileError(f"{path}: format {index.format}, and this viewer reads {_FORMAT}: install a newer splatview")
    if not 0 < index.every < 1e18:
        raise FileError(f"{path}: damaged: a snapshot every {index.every} steps")
    there = [line for line in index.snapshots[:MOST_SNAPSHOTS] if _NAME.fullmatch(line.file)
             and _size(folder / line.file) == line.bytes]
    there = sorted({line.file: line for line in there}.values(), key=lambda line: line.file)
    return msgspec.structs.replace(index, snapshots=there)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return -1


class StreamFolder:
    """Where one stream is being recorded. One at a time writes there: it holds a lock until it is closed.

    Methods but `close` are called from one thread at a time.
    """

    def __init__(self, root: Path, run: str, name: str) -> None:
        """A folder in `root`, which is made, for its owner alone (0700); one that was recorded before by a run and
        stream of these names is gone on with, unless somebody is writing there. Raises OSError, and FileError for a
        folder that cannot be used."""
        self.run, self.name = run[:200], name[:200]
        make_output_folder(root)
        base = _slug(f"{run}-{name}")
        for number in range(1, 100):
            self.path = root / (base if number == 1 else f"{base}-{number}")
            self.path.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_ours():
                    self._tidy()
                    return
            except BlockingIOError:
                pass
            except BaseException:
                self.close()
                raise
            self.close()
        raise FileError(f"{root / base}: it and 98 like it are being written by others; record into another folder")

    def _is_ours(self) -> bool:
        """Take in what was recorded here before. False: it is another stream's."""
        self.before = Index(_FORMAT, self.run, self.name, 1.0, [])
        if not is_recording(self.path):
            return True
        self.before = read_index(self.path)
        return (self.before.run, self.before.name) == (self.run, self.name)

    def _tidy(self) -> None:
        """Remove what an end in the middle of things has left."""
        named = {line.file for line in self.before.snapshots}
        for path in self.path.iterdir():
            if (_NAME.fullmatch(path.name) and path.name not in named) or path.name.endswith(_PART):
                path.unlink(missing_ok=True)

    def file(self, number: int) -> Path:
        """Where snapshot `number` lies."""
        return self.path / f"{number:09}.gaussians"

    def write_index(self, every: float, lines: list[Line], dropped: Iterable[Path] = ()) -> None:
        """Say what there is, and then remove what has been dropped. Raises OSError."""
        text = msgspec.json.format(msgspec.json.encode(Index(_FORMAT, self.run, self.name, every, lines)), indent=1)
        write_output(self.path / INDEX, text)
        for path in dropped:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let others write here. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def _slug(text: str) -> str:
    """As a folder's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:100] or "stream"
