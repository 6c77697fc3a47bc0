"""Memory snapshots of PyTorch's from files, read in the sandbox.

snapshot = load_snapshot("memory.pickle")
"""

from __future__ import annotations

import gc
import gzip
import io
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

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

GZIP = b"\x1f\x8b"
PLAIN_RATIO = 256
"""How much larger than the file its content may be: snapshots, which repeat themselves, shrink by 10 to 60."""
FREE_SHARE = 0.8
PER_BYTE = 12
"""The part of the free memory that reading may take, and bytes of memory for each byte of the pickle."""
SECONDS_BASE = 10
SECONDS_PER_BYTE = 1 / (1 << 20)
"""Seconds of the processor that reading may take in any case, and for each byte of the pickle."""
DEFLATE_RATIO = 1032
"""How much larger than the file its content can be at all."""
LEGACY_MAGIC = (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
"""What the files of old `torch.save` begin with, as a pickled number."""


def load_snapshot(
    path: str | Path, progress: Progress = silent, *, cache: bool = True
) -> MemorySnapshot:
    """Return the snapshot in a file: a pickle of `torch.cuda.memory._dump_snapshot`, plain or packed by gzip.

    Args:
        progress: called with what is going on and how far it is (0 to 1). It may raise to cancel.
        cache: keep the columns in the user's cache folder, and take them from there.

    Raises:
        FileError: damaged, refused, or no snapshot.
        OSError: the file cannot be opened.
    """
    from splatview_viewer.snapshot.loading import store

    path = Path(path)
    where = store.columns_folder() if cache else None
    key = store.cache_key(path)
    name = printable(path.name)
    if where is not None and (found := store.load_cached(where, key, name)) is not None:
        return found
    with open_regular(path) as f:
        packed = f.read(2) == GZIP
        size = path.stat().st_size
    answer, arrays = run(
        read_pickle,
        [path],
        _limits(size, packed),
        store.SnapshotAnswer,
        prepare=prepare,
        progress=progress,
    )
    snapshot = store.unpack(answer, arrays, name)
    if where is not None and key == store.cache_key(path):
        store.save(where, key, answer, arrays)
        return (
            store.load_cached(where, key, name) or snapshot
        )  # a file's pages can be let go, the sandbox's cannot
    return snapshot


def _limits(size: int, packed: bool) -> Limits:
    """Return the limits for a file of `size` bytes."""
    pickle_bytes = max(BOMB_BYTES, PLAIN_RATIO * size) if packed else size
    limits = limits_for(pickle_bytes, FREE_SHARE, PER_BYTE)
    possible_bytes = min(pickle_bytes, DEFLATE_RATIO * size)
    seconds = int(SECONDS_BASE + SECONDS_PER_BYTE * possible_bytes)
    return limits._replace(seconds=min(limits.seconds, seconds))


def from_pickled(data: dict[str, Any], name: str = "") -> MemorySnapshot:
    """Return the Snapshot of what `torch.cuda.memory._snapshot` returns. Raises FileError."""
    from splatview_viewer.snapshot.loading.convert import convert

    return convert(data, name)


# -- in the sandbox ----------------------------------------------------------------------------------------------------


def prepare(files: list[File]) -> None:
    """Import what `read_pickle` needs."""
    from splatview_viewer.snapshot.loading import convert, store  # noqa: F401

    gc.disable()  # what is read has no cycles, and looking for some takes longer than reading


def read_pickle(
    files: list[File], progress: Progress
) -> tuple[SnapshotAnswer, list[np.ndarray]]:
    """Read a snapshot, plain or packed: nothing that its pickle asks for is called. Raises FileError."""
    from splatview_viewer.snapshot.loading.convert import convert
    from splatview_viewer.snapshot.loading.store import pack

    size = max(files[0].path.stat().st_size, 1)
    try:
        with open(files[0].path, "rb", buffering=0) as f, _content(f) as content:
            stream = io.BufferedReader(
                _Watched(content, lambda: progress("reading", 0.6 * f.tell() / size)),
                1 << 20,
            )
            try:
                data = SnapshotUnpickler(stream).load()
                count = content.tell()
            except (FileError, MemoryError):
                raise
            except Exception as e:  # a damaged pickle ends in errors of any kind
                raise FileError(
                    f"truncated or damaged: {type(e).__name__}: {str(e)[:200]}"
                ) from None
        return pack(
            convert(
                data,
                "",
                lambda what, fraction: progress(what, 0.6 + 0.4 * fraction),
                consume=True,
                file_bytes=count,
            )
        )
    except MemoryError:
        raise FileError(
            "damaged, made to exhaust memory, or too large for the free memory: end other programs, or "
            "record fewer events (max_entries)"
        ) from None


class SnapshotUnpickler(pickle.Unpickler):
    """Makes containers, texts and numbers, and nothing else: a pickle that asks for anything else is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise FileError(
            f"refused: the pickle asks for {module[:60]}.{name[:60]}; a memory snapshot holds only "
            "mappings, lists, texts and numbers. Nothing of it was run"
        )


class _Watched(io.RawIOBase):
    """A stream that calls a function after each read."""

    def __init__(self, inner: Any, told: Callable[[], None]) -> None:
        super().__init__()
        self.inner = inner
        self.told = told

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n = self.inner.readinto(buffer)
        self.told()
        return n


def _content(f: BinaryIO) -> Any:
    """The unpacked bytes of a file, as a stream."""
    packed = f.read(2) == GZIP
    f.seek(0)
    return gzip.GzipFile(fileobj=io.BufferedReader(f, 1 << 18)) if packed else f  # type: ignore[arg-type]


# -- recognising -------------------------------------------------------------------------------------------------------


def is_snapshot(start: Start) -> bool:
    """Return True for a pickle of protocol 2 to 5, also a packed one, that does not look like a checkpoint."""
    if start.path.is_dir() or start.suffix in (".splat", ".pt", ".pth", ".ckpt"):
        return False
    if LEGACY_MAGIC in start.head[:24] or start.head[:4] == ZIP_MAGIC:
        return False
    with open(start.path, "rb", buffering=0) as f:
        try:
            with _content(f) as content:
                head = content.read(2)
        except Exception:  # packed, and damaged
            return False
    return len(head) == 2 and head[0] == 0x80 and 2 <= head[1] <= 5


FORMAT = Format(
    "snapshot",
    (".pickle", ".pkl"),
    "PyTorch's memory snapshots, also packed by gzip",
    is_snapshot,
    load_snapshot,
)
