"""Memory snapshots of PyTorch's from files, read in the sandbox.

    snapshot = load_snapshot("memory.pickle")
"""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import ZIP_MAGIC, Format, Progress, Start, silent
from splatview_viewer.formats.sandbox import limits_for, run
from splatview_viewer.kinds.snapshot.loading.unpickle import begins_as_pickle, is_packed, unpacked_limit

if TYPE_CHECKING:
    import numpy as np

    from splatview_viewer.formats.sandbox import File
    from splatview_viewer.kinds.snapshot.loading.store import SnapshotAnswer
    from splatview_viewer.kinds.snapshot.model import Snapshot

FREE_SHARE, PER_BYTE = 0.8, 12
"""The part of the free memory that reading may take, and bytes of memory for each byte of the pickle."""
LEGACY_MAGIC = (0x1950A86A20F9469CFC6C).to_bytes(10, "little")
"""What the files of old `torch.save` begin with, as a pickled number."""
_SNAPSHOT = re.compile(
    rb'(?:\x80[\x02-\x05].{0,20}?|\A[{\[\s]+")(?=segments|device|address|allocat|active_size|external_annotations)'
    rb".*?(?:device_traces|total_size)", re.DOTALL)
"""The beginning of a pickle or a JSON text that holds a memory snapshot."""
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # mallopt(3)


def load_snapshot(path: str | Path, progress: Progress = silent, *, cache: bool = True) -> Snapshot:
    """Return the snapshot in a file: a pickle of `torch.cuda.memory._dump_snapshot`, plain or packed by gzip or zstd.

    Args:
        progress: called with what is going on and how far it is (0 to 1). It may raise to cancel.
        cache: keep the columns in the user's cache folder, and take them from there.

    Raises:
        FileError: damaged, refused, or no snapshot.
        OSError: the file cannot be opened.
    """
    from splatview_viewer.kinds.snapshot.loading import store

    path = Path(path)
    where, key = store.folder() if cache else None, store.key_of(path)
    if where is not None and (found := store.kept(where, key, path.name)) is not None:
        return found
    answer, arrays = run(read_pickle, [path], limits_for(unpacked_limit(path), FREE_SHARE, PER_BYTE),
                         store.SnapshotAnswer, prepare=prepare, progress=progress)
    snapshot = store.unpacked(answer, arrays, path.name)
    if where is not None and key == store.key_of(path):
        store.keep(where, key, answer, arrays)
        return store.kept(where, key, path.name) or snapshot  # a file's pages can be let go, the sandbox's cannot
    return snapshot


def from_pickled(data: dict[str, Any], name: str = "") -> Snapshot:
    """Return the Snapshot of what `torch.cuda.memory._snapshot` returns. Raises FileError."""
    from splatview_viewer.kinds.snapshot.loading.convert import convert

    return convert(data, name)


# -- in the sandbox ----------------------------------------------------------------------------------------------------


def prepare(files: list[File]) -> None:
    """Import what `read_pickle` needs, and have memory that was freed kept for the next array: getting each from the
    kernel anew takes a quarter of the time."""
    import ctypes

    from splatview_viewer.kinds.snapshot.loading import convert, store  # noqa: F401

    with open(files[0].path, "rb") as f:
        if is_packed(f.read(4)):
            import gzip  # noqa: F401

            import zstandard  # noqa: F401
    gc.disable()  # what is read has no cycles, and looking for some takes longer than reading
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_MAX, 0)
    libc.mallopt(_M_TRIM_THRESHOLD, -1)


def read_pickle(files: list[File], progress: Progress) -> tuple[SnapshotAnswer, list[np.ndarray]]:
    """Read a snapshot. Raises FileError."""
    from splatview_viewer.kinds.snapshot.loading.convert import convert
    from splatview_viewer.kinds.snapshot.loading.store import packed
    from splatview_viewer.kinds.snapshot.loading.unpickle import unpickle

    try:
        data, count = unpickle(files[0].path, lambda fraction: progress("reading", 0.6 * fraction))
        return packed(convert(data, "", lambda what, fraction: progress(what, 0.6 + 0.4 * fraction), consume=True,
                              file_bytes=count))
    except MemoryError:
        raise FileError("damaged, made to exhaust memory, or too large for the free memory: end other programs, or "
                        "record fewer events (max_entries)") from None


# -- recognising -------------------------------------------------------------------------------------------------------


def is_snapshot(start: Start) -> bool:
    """Return True for a pickle of protocol 2 to 5, also a packed one, that does not look like a checkpoint.

    Raises FileError for a snapshot that was saved in another way.
    """
    head = start.head
    if start.path.is_dir():
        return False
    if LEGACY_MAGIC in head[:24] or head[:4] == ZIP_MAGIC or head.lstrip()[:1] in (b"{", b"["):
        if _SNAPSHOT.search(head):
            raise FileError("a snapshot saved by torch.save or json.dump; only what torch.cuda.memory._dump_snapshot "
                            "writes can be opened: load it as it was saved, and write it with pickle.dump")
        return False
    return start.suffix not in (".splat", ".pt", ".pth", ".ckpt") and begins_as_pickle(start.path)


FORMAT = Format("snapshot", (".pickle", ".pkl"), "PyTorch's memory snapshots, also packed by gzip or zstd",
                is_snapshot, load_snapshot)
