"""Files that are decoded in a bounded program of their own rather than in the viewer: all that come from browser pages,
and checkpoints.

    scene = read_apart(path)                # as open_file(path)
    film = read_film_apart(path)            # as read_path(path)
    scene = read_tensors_apart([path])      # the tensors of checkpoints

Decoders of untrusted files can take all memory, loop without end or crash. The program (`reading`) inherits the open
file and nothing else, takes bounded memory and processor time, and writes arrays to a memory file. The viewer seals
that file, checks the description of the arrays against its size, and maps it.

Other files that the user names on this machine are read in the viewer: a program starts in 0.3 s, with torch in 2 s.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from splatview_ipc.kinds.gaussians import SH_REST
from splatview_ipc.system.free_memory import available_bytes
from splatview_viewer.errors import CameraError, FileError
from splatview_viewer.files.common import silent
from splatview_viewer.files.program import ReadingProgram
from splatview_viewer.files.program_limits import BASE, CPU_BASE, CPU_PER_BYTE
from splatview_viewer.regular import open_regular
from splatview_viewer.scene import FIELDS, UPS, GaussianScene

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from splatview_viewer.files.common import Progress
    from splatview_viewer.memory.model import Snapshot
    from splatview_viewer.paths.nerfstudio import Film

PER_BYTE = 64
"""Bytes of memory that the program may take for each byte of the file, beside BASE: packed scenes become so large."""
FREE_SHARE, OWN_FREE_SHARE = 1 / 3, 0.8
"""The part of the free memory that the program may take, for a page's file and for one of the user of this machine."""
AT_ONCE = 2
"""Programs at a time; other files wait."""
MOST_FRAMES = 20_000
"""Cameras of a path without key frames: each costs the loop that draws some time."""
_ALIGN = 64
_ITEMS = {"u1": 1, "u2": 2, "f4": 4, "f8": 8}
_TRIES_EVERY = 0.1
"""Seconds between two calls of `progress` while a file waits for its turn."""

_turns = threading.BoundedSemaphore(AT_ONCE)
_Extent = Annotated[int, Meta(ge=0, le=1 << 40)]


class Column(msgspec.Struct, frozen=True):
    """An array in the memory file: dtype (little endian), shape, and where it begins."""

    dtype: Literal["u1", "u2", "f4", "f8"]
    shape: Annotated[tuple[_Extent, ...], Meta(max_length=3)]
    at: _Extent


class SceneHeader(msgspec.Struct, frozen=True, tag="scene"):
    """A GaussianScene."""

    columns: Annotated[list[Column], Meta(min_length=6, max_length=6)]
    sh_degree: Annotated[int, Meta(ge=0, le=4)]
    antialiased: bool
    notes: Annotated[list[Annotated[str, Meta(max_length=2000)]], Meta(max_length=64)]
    up: tuple[float, float, float] | None = None


class PictureHeader(msgspec.Struct, frozen=True, tag="picture"):
    """A picture (H, W, C)."""

    pixels: Column


class FilmHeader(msgspec.Struct, frozen=True, tag="film"):
    """A camera path: of each key frame position, rotation, field of view and seconds, in columns of f8."""

    columns: Annotated[list[Column], Meta(min_length=4, max_length=4)]
    loop: bool
    smooth: bool
    model: Literal["pinhole", "fisheye"]
    width: Annotated[int, Meta(ge=1, le=16384)]
    height: Annotated[int, Meta(ge=1, le=16384)]
    fps: Annotated[float, Meta(ge=0.01, le=1000)]
    held: bool = False


class SnapshotHeader(msgspec.Struct, frozen=True, tag="snapshot"):
    """A memory snapshot, which was recognised and not read: another bounded program reads those."""


Header = SceneHeader | PictureHeader | FilmHeader | SnapshotHeader
_headers = msgspec.json.Decoder(Header)
T = TypeVar("T", bound=Header)


# -- in the program ----------------------------------------------------------------------------------------------------


def write_columns(fd: int, arrays: list[np.ndarray]) -> list[Column]:
    """Write arrays to an empty memory file; return where they are."""
    columns, at = [], 0
    for array in arrays:
        kind = f"{array.dtype.kind}{array.dtype.itemsize}"
        assert kind in _ITEMS, kind
        columns.append(Column(kind, array.shape, at))  # type: ignore[arg-type]
        data = np.ascontiguousarray(array, f"<{kind}").reshape(-1).view(np.uint8).data
        start = at
        while len(data):
            n = os.pwrite(fd, data[:1 << 26], start)
            data, start = data[n:], start + n
        at = -(-start // _ALIGN) * _ALIGN
    return columns


# -- in the viewer -----------------------------------------------------------------------------------------------------


def read_apart(path: Path, progress: Progress = silent, started: Callable[[int], None] = lambda pid: None,
               ) -> GaussianScene | np.ndarray | Snapshot:
    """Return what a file holds, decoded by another program. For a thread that may wait.

    Args:
        path: a file; folders are refused.
        progress: called with what is going on and how far it is (0 to 1), at least ten times a second; what it raises
            ends the program.
        started: called with the id of the program's process.

    Raises:
        FileError: the file cannot be read; the message starts with the path.
    """
    try:
        header, room = _read([path], "any", progress, started)
        if isinstance(header, SceneHeader):
            return _scene(header, room)
        if isinstance(header, PictureHeader):
            return _picture(header, room)
        if isinstance(header, FilmHeader):
            raise FileError("the program that read it took it for a camera path")
        from splatview_viewer.memory.loading import load_snapshot

        with _Turn(progress):
            return load_snapshot(path, progress)
    except FileError as e:
        text = str(e)
        raise FileError(text if text.startswith(str(path)) else f"{path}: {text}") from None
    except OSError as e:
        raise FileError(f"{path}: cannot be read: {e.strerror or e}") from e


def read_film_apart(path: Path, progress: Progress = silent,
                    started: Callable[[int], None] = lambda pid: None) -> Film:
    """Return the camera path in a file, decoded by another program; arguments as in `read_apart`.

    Raises CameraError, which names the file, when it holds none.
    """
    try:
        header, room = _read([path], "film", progress, started)
        if not isinstance(header, FilmHeader):
            raise FileError("no camera path")
        return _film(header, room)
    except FileError as e:
        text = str(e)
        raise CameraError(text if text.startswith((str(path), "path: ")) else f"{path}: {text}") from None
    except OSError as e:
        raise CameraError(f"path: {path} cannot be read: {e.strerror or e}") from None


def read_tensors_apart(paths: Sequence[Path], progress: Progress) -> GaussianScene:
    """Return the Gaussians in the files of one checkpoint, decoded by another program. For a thread that may wait.

    Raises:
        FileError: they cannot be read. What `progress` raises ends the program.
    """
    header, room = _read(paths, "tensors", progress, lambda pid: None)
    if not isinstance(header, SceneHeader):
        raise FileError("the program that read it took it for something else than a scene")
    return _scene(header, room)


class _Turn:
    """A place among the AT_ONCE programs that run at a time."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __enter__(self) -> None:
        while not _turns.acquire(timeout=_TRIES_EVERY):
            self._progress("waiting for other files", 0.0)

    def __exit__(self, *_: object) -> None:
        _turns.release()


def _read(paths: Sequence[Path], kind: str, progress: Progress,
          started: Callable[[int], None]) -> tuple[Header, mmap.mmap | None]:
    """Run the program; return what it says of the result, and the mapped result."""
    with _Turn(progress), ExitStack() as opened:
        files = [opened.enter_context(open_regular(path)).fileno() for path in paths]
        size = sum(os.fstat(file).st_size for file in files)
        free = available_bytes()
        memory = BASE + PER_BYTE * size
        if free is not None:
            memory = min(memory, int(free * (OWN_FREE_SHARE if kind == "tensors" else FREE_SHARE)))
        if kind == "tensors":
            memory += size  # mapped, which takes address space and no memory
        out = os.memfd_create("splatview-file", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        program = None
        try:
            program = ReadingProgram("splatview_viewer.files.reading", {
                "kind": kind, "name": str(paths[0]), "files": files, "out": out, "memory": str(memory),
                "seconds": str(int(CPU_BASE + CPU_PER_BYTE * size))}, CUDA_VISIBLE_DEVICES="")
            started(program.pid)
            said = program.wait(progress)
            program.end()  # what is mapped is never written by another process
            return _checked(said), _mapped(out)
        finally:
            if program is not None:
                program.end()
            os.close(out)


def _checked(said: bytes) -> Header:
    try:
        return _headers.decode(said)
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise FileError(f"the program that read it described the result wrongly: {e}") from None


def _mapped(fd: int) -> mmap.mmap | None:
    """Return the sealed file, mapped privately; None for an empty one."""
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
                    | fcntl.F_SEAL_SEAL)
    except OSError as e:
        raise FileError(f"the result of the program that read it cannot be sealed: {e.strerror or e}") from None
    size = os.fstat(fd).st_size
    return mmap.mmap(fd, size, access=mmap.ACCESS_COPY) if size else None


def _array(column: Column, room: mmap.mmap | None) -> np.ndarray:
    """Return an array of the result. Raises FileError where it would lie outside."""
    count = math.prod(column.shape)
    if not count:
        return np.zeros(column.shape, f"<{column.dtype}")
    if room is None or column.at % _ALIGN or column.at + count * _ITEMS[column.dtype] > len(room):
        raise FileError(f"the program that read it described an array outside its result: {column}")
    return np.frombuffer(room, f"<{column.dtype}", count, column.at).reshape(column.shape)


def _scene(header: SceneHeader, room: mmap.mmap | None) -> GaussianScene:
    arrays = [_array(column, room) for column in header.columns]
    n = len(arrays[0]) if arrays[0].ndim else -1
    k = arrays[5].shape[1] if arrays[5].ndim == 3 else -1
    shapes = (n, 3), (n, 4), (n, 3), (n,), (n, 3), (n, k, 3)
    if header.up not in (None, *UPS.values()):
        raise FileError(f"the program that read it described {header.up} as up; legal are directions of one axis")
    if k not in SH_REST or header.sh_degree > SH_REST.index(k) or any(
            a.shape != shape or (a.dtype != np.float32 and (a.dtype != np.float64 or a is not arrays[0]))
            for a, shape in zip(arrays, shapes, strict=True)):
        raise FileError("the program that read it described a scene whose arrays do not fit together")
    return GaussianScene(**dict(zip(FIELDS, arrays, strict=True)), sh_degree=header.sh_degree,
                         antialiased=header.antialiased, notes=tuple(header.notes), up=header.up)


def _picture(header: PictureHeader, room: mmap.mmap | None) -> np.ndarray:
    picture = _array(header.pixels, room)
    if picture.ndim != 3 or picture.dtype == np.float64 or not 1 <= picture.shape[2] <= 4 or not picture.size:
        raise FileError(f"the program that read it described a picture of shape {picture.shape}, {picture.dtype}")
    return picture


def _film(header: FilmHeader, room: mmap.mmap | None) -> Film:
    from splatview_viewer.paths.nerfstudio import Film
    from splatview_viewer.paths.path import CameraPath, Key

    positions, rotations, fovs, seconds = (_array(column, room) for column in header.columns)
    n = len(positions) if positions.ndim else 0
    if not 0 < n <= MOST_FRAMES:
        raise FileError(f"the program that read it described a path of {n:,} cameras")
    if (positions.shape, rotations.shape, fovs.shape, seconds.shape) != ((n, 3), (n, 4), (n,), (n,)) or not all(
            a.dtype == np.float64 and np.isfinite(a).all() for a in (positions, rotations, fovs, seconds)) or not (
            (fovs > 0).all() and (fovs < 180).all() and (seconds > 0).all()
            and np.allclose(np.linalg.norm(rotations, axis=1), 1, atol=1e-3)):
        raise FileError("the program that read it described a camera path whose arrays do not fit together")
    keys = [Key(p.copy(), r.copy(), f, s) for p, r, f, s in zip(positions, rotations, fovs.tolist(), seconds.tolist(),
                                                                strict=True)]
    path = CameraPath(keys, header.loop, header.smooth, header.model, header.held)
    return Film(path, header.width, header.height, header.fps)
