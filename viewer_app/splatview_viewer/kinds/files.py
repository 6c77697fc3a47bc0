"""Opening files of every format: scenes and pictures, and the formats of single kinds.

value = open_file(path)          # the format is found by the content
value = read_untrusted(path)     # the same for a file that comes from a browser page
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from splatview_viewer import formats
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import PictureAnswer, read_as, value_of
from splatview_viewer.formats.checkpoint import import_torch
from splatview_viewer.formats.common import SceneFileFacts, silent
from splatview_viewer.formats.sandbox import limits_for, run
from splatview_viewer.snapshot import loading as snapshot
from splatview_viewer.snapshot.loading.ranks import RANKS_FORMAT

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from splatview_viewer.formats.common import Format, Progress
    from splatview_viewer.formats.sandbox import File
    from splatview_viewer.scene.scene import GaussianScene
    from splatview_viewer.snapshot.loading.ranks import RankTable
    from splatview_viewer.snapshot.model import MemorySnapshot

FORMATS: tuple[Format, ...] = (snapshot.FORMAT, *formats.FORMATS, RANKS_FORMAT)
"""Everything that `open_file` opens, in the order in which a file's content is tried."""


class SnapshotFound(msgspec.Struct, frozen=True, tag="snapshot"):
    """A memory snapshot, which was recognised and not read: its reader has limits of its own."""


def open_file(
    path: str | Path, progress: Progress = silent
) -> GaussianScene | np.ndarray | MemorySnapshot | RankTable:
    """Return what a file or folder holds; arguments and errors as of `formats.open_file`."""
    return formats.open_file(path, progress, FORMATS)


Signature = tuple[tuple[str, int, int, int, int, int], ...]
"""Each file that makes a value: path, device, inode, size, and in ns the time of its content, which copying programs set
back, and that of its last change of any kind."""


def signature_of(path: Path) -> Signature | None:
    """Return what tells a file, or the files of a folder, from those that replace them; None while some are missing."""
    try:
        part_paths = formats.find_format(path, formats=FORMATS).parts(path)
        stats = [part_path.stat() for part_path in part_paths]
    except (FileError, OSError):
        return None
    return tuple(
        (
            str(part),
            stat.st_dev,
            stat.st_ino,
            stat.st_size,
            stat.st_mtime_ns,
            stat.st_ctime_ns,
        )
        for part, stat in zip(part_paths, stats, strict=True)
    )


def recognise(path: Path) -> str:
    """Return the name of the format of a file or folder. Raises FileError."""
    return formats.find_format(path, formats=FORMATS).name


def expected_format(path: Path, *, is_trusted: bool) -> str:
    """Return the name of the format that a file seems to be of; "" where nothing says so.

    Args:
        path: the file.
        is_trusted: its content may be looked at, not its name alone.
    """
    if is_trusted:
        try:
            return recognise(path)
        except (FileError, OSError):
            return ""
    suffixes = {suffix.lower() for suffix in path.suffixes}
    for file_format in FORMATS:
        if suffixes.intersection(file_format.suffixes):
            return file_format.name
    return ""


def read_untrusted(
    path: Path, progress: Progress = silent
) -> GaussianScene | np.ndarray | MemorySnapshot:
    """Return what a file from a browser page holds; decoded in the sandbox. For a thread that may wait.

    Args:
        path: a file; folders are refused.
        progress: called with the activity and how far it is (0 to 1).

    Raises:
        FileError: the file cannot be read; the message starts with the path.
    """
    try:
        answer, arrays = run(
            read_any,
            [path],
            limits_for(path.stat().st_size),
            SceneFileFacts | PictureAnswer | SnapshotFound,
            prepare=import_torch,
            progress=progress,
        )
        if isinstance(answer, SnapshotFound):
            return snapshot.load_snapshot(path, progress, cache=False)
        return value_of(answer, arrays)
    except FileError as e:
        raise FileError(
            str(e) if str(e).startswith(str(path)) else f"{path}: {e}"
        ) from None
    except OSError as e:
        raise FileError(f"{path}: cannot be read: {e.strerror or e}") from e


def read_any(files: list[File], progress: Progress) -> tuple[Any, list[np.ndarray]]:
    """Read a file of any format, in the sandbox. Raises FileError."""
    path, name = files[0]
    file_format = formats.find_format(path, name, FORMATS)
    if file_format is snapshot.FORMAT:
        return (SnapshotFound(), [])
    return read_as(file_format, path, progress)
