"""Memory snapshots of PyTorch's from files.

    snapshot = load_snapshot("memory.pickle")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.formats import Progress, silent
from splatview_viewer.kinds.snapshot.loading.opening import begins_as_pickle, is_packed, is_pickle

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.kinds.snapshot.model import Snapshot

__all__ = ["from_pickled", "is_snapshot", "load_snapshot"]


def load_snapshot(path: str | Path, progress: Progress = silent, *, cache: bool = True) -> Snapshot:
    """The snapshot in a file: a pickle of `torch.cuda.memory._dump_snapshot`, plain or packed by gzip or zstd.

    Args:
        progress: called with what is going on and how far it is (0 to 1). It may raise to cancel.
        cache: keep the columns in the user's cache folder, and take them from there.

    Raises:
        FileError: damaged, refused, or no snapshot.
    """
    from splatview_viewer.kinds.snapshot.loading.load import load

    return load(path, progress, cache=cache)


def from_pickled(data: dict[str, Any], name: str = "") -> Snapshot:
    """The Snapshot of what `torch.cuda.memory._snapshot` returns. Raises FileError."""
    from splatview_viewer.kinds.snapshot.loading.convert import convert

    return convert(data, name)


def is_snapshot(path: Path, head: bytes) -> bool:
    """Whether a file that begins with `head` (some hundred bytes) is to be read as a snapshot.

    A pickle of protocol 2 to 5, plain or packed. Whether a pickle holds a snapshot or a checkpoint its content does not
    tell.
    """
    return is_pickle(head) or (is_packed(head) and begins_as_pickle(path))
