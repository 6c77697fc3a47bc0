"""Reads PyTorch's memory snapshots from files, in the sandbox.

snapshot = load_snapshot("memory.pickle")
"""

from __future__ import annotations

import gc
import gzip
import io
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeVar

from splatview_ipc.system.terminal import printable
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.common import (
    BOMB_BYTES,
    ZIP_MAGIC,
    Format,
    Progress,
    Start,
    silent,
)
from splatview_viewer.formats.sandbox import limits_for, run

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from splatview_viewer.formats.sandbox import File, Limits
    from splatview_viewer.snapshot.loading.store import SnapshotAnswer
    from splatview_viewer.snapshot.model import MemorySnapshot

T = TypeVar("T")
GZIP = b"\x1f\x8b"
UNPACKED_RATIO = 256
"""How much larger than a packed file its content may be: snapshots, which repeat
themselves, shrink by 10 to 60."""
FREE_SHARE = 0.8
"""Share of the free memory that reading may take."""
PER_BYTE = 12
"""Bytes of memory that reading may take for each byte of the pickle."""
SECONDS_BASE = 10
"""Seconds of the processor that reading may take in any case."""
SECONDS_PER_BYTE = 1 / (1 << 20)
"""Seconds of the processor that reading may take for each byte of the pickle."""
DEFLATE_RATIO = 1032
"""How much larger than the file its content can be at all."""
LEGACY_MAGIC = (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
"""First bytes of the files of old `torch.save`, as a pickled number."""
_READ_SHARE = 0.6
"""Share of the progress that unpickling takes; converting takes the rest."""


def load_snapshot(
    path: str | Path, progress: Progress = silent, *, cache: bool = True
) -> MemorySnapshot:
    """Load a pickle of `torch.cuda.memory._dump_snapshot`, plain or packed by gzip.

    Args:
        progress: called with what is going on and how far it is (0 to 1). It may raise to
            cancel.
        cache: keep the columns in the user's cache folder, and take them from there.

    Raises:
        FileError: the file is damaged, refused, or no snapshot.
        OSError: the file cannot be opened.
    """
    from splatview_viewer.snapshot.loading import store

    path = Path(path)
    folder = store.columns_folder() if cache else None
    key = store.cache_key(path)
    name = printable(path.name)
    if folder is not None:
        snapshot = store.load_cached(folder, key, name)
        if snapshot is not None:
            return snapshot
    answer, arrays = run(
        read_pickle,
        [path],
        limits_of(path),
        store.SnapshotAnswer,
        prepare=prepare,
        progress=progress,
    )
    snapshot = store.unpack(answer, arrays, name)
    # Columns are not saved under the key of a file that has changed meanwhile.
    if folder is None or key != store.cache_key(path):
        return snapshot
    store.save(folder, key, answer, arrays)
    # The kernel can drop pages of a mapped file, but not those of the sandbox's memory.
    return store.load_cached(folder, key, name) or snapshot


def limits_of(path: Path) -> Limits:
    """Return the limits on reading a file. Raises OSError where it cannot be opened."""
    with open_regular(path) as file:
        is_packed = file.read(2) == GZIP
        size = path.stat().st_size
    pickle_bytes = size
    if is_packed:
        pickle_bytes = max(BOMB_BYTES, UNPACKED_RATIO * size)
    limits = limits_for(pickle_bytes, FREE_SHARE, PER_BYTE)
    possible_bytes = min(pickle_bytes, DEFLATE_RATIO * size)
    seconds = int(SECONDS_BASE + SECONDS_PER_BYTE * possible_bytes)
    return limits._replace(seconds=min(limits.seconds, seconds))


def from_pickled(data: dict[str, Any], name: str = "") -> MemorySnapshot:
    """Convert what `torch.cuda.memory._snapshot` returns.

    Raises:
        FileError: it is no snapshot.
    """
    from splatview_viewer.snapshot.loading.convert import convert

    return convert(data, name)


# -- in the sandbox --------------------------------------------------------------------


def prepare(files: list[File]) -> None:
    """Import the modules that `read_pickle` needs."""
    from splatview_viewer.snapshot.loading import convert, store  # noqa: F401

    # What is read has no cycles, and looking for some takes longer than reading.
    gc.disable()


def read_pickle(
    files: list[File], progress: Progress
) -> tuple[SnapshotAnswer, list[np.ndarray]]:
    """Read a snapshot, plain or packed. Nothing that its pickle asks for is called.

    Raises:
        FileError: the file is damaged, refused, or no snapshot.
    """
    from splatview_viewer.snapshot.loading.store import pack

    return read_into(pack, files[0].path, progress)


def read_into(
    reduce: Callable[[MemorySnapshot], T], path: Path, progress: Progress
) -> T:
    """Read a snapshot, and return the part of it that leaves the sandbox.

    Args:
        reduce: returns that part.
        path: the file.
        progress: called with the present activity and how far it is (0 to 1).

    Raises:
        FileError: the file is damaged, refused, or no snapshot.
    """
    from splatview_viewer.snapshot.loading.convert import convert

    def on_convert(step: str, fraction: float) -> None:
        progress(step, _READ_SHARE + (1 - _READ_SHARE) * fraction)

    try:
        data, file_bytes = _unpickle(path, progress)
        snapshot = convert(data, "", on_convert, consume=True, file_bytes=file_bytes)
        return reduce(snapshot)
    except MemoryError:
        raise FileError(
            "damaged, made to exhaust memory, or too large for the free memory: end other "
            "programs, or record fewer events (max_entries)"
        ) from None


def _unpickle(path: Path, progress: Progress) -> tuple[Any, int]:
    """Return the content of a pickle, and its size in bytes when it is not packed."""
    size = max(path.stat().st_size, 1)
    with open(path, "rb", buffering=0) as file, _content(file) as content:

        def on_read() -> None:
            progress("reading", _READ_SHARE * file.tell() / size)

        stream = io.BufferedReader(_ReportingStream(content, on_read), 1 << 20)
        try:
            data = SnapshotUnpickler(stream).load()
            return data, content.tell()
        except (FileError, MemoryError):
            raise
        # A damaged pickle ends in errors of any kind.
        except Exception as error:
            raise FileError(
                f"truncated or damaged: {type(error).__name__}: {str(error)[:200]}"
            ) from None


class SnapshotUnpickler(pickle.Unpickler):
    """Makes containers, texts and numbers, and refuses pickles that ask for more."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise FileError(
            f"refused: the pickle asks for {module[:60]}.{name[:60]}; a memory snapshot "
            "holds only mappings, lists, texts and numbers. Nothing of it was run"
        )


class _ReportingStream(io.RawIOBase):
    """A stream that calls a function after each read."""

    def __init__(self, inner: Any, on_read: Callable[[], None]) -> None:
        super().__init__()
        self._inner = inner
        self._on_read = on_read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._inner.readinto(buffer)
        self._on_read()
        return count


def _content(file: BinaryIO) -> Any:
    """Return the unpacked bytes of a file, as a stream."""
    is_packed = file.read(2) == GZIP
    file.seek(0)
    if not is_packed:
        return file
    return gzip.GzipFile(fileobj=io.BufferedReader(file, 1 << 18))  # type: ignore[arg-type]


# -- recognising -----------------------------------------------------------------------


def is_snapshot(start: Start) -> bool:
    """Return True for a pickle of protocol 2 to 5 that does not look like a checkpoint.

    It may be packed by gzip.
    """
    if start.path.is_dir() or start.suffix in (".splat", ".pt", ".pth", ".ckpt"):
        return False
    if LEGACY_MAGIC in start.head[:24] or start.head[:4] == ZIP_MAGIC:
        return False
    with open(start.path, "rb", buffering=0) as file:
        try:
            with _content(file) as content:
                head = content.read(2)
        # A packed file that is damaged.
        except Exception:
            return False
    return len(head) == 2 and head[0] == 0x80 and 2 <= head[1] <= 5


FORMAT = Format(
    "snapshot",
    (".pickle", ".pkl"),
    "PyTorch's memory snapshots, also packed by gzip",
    is_snapshot,
    load_snapshot,
)
