"""The CUDA allocator's memory over time: what a snapshot holds, as columns, and everything that is worked out of it.

Nothing in here draws with OpenGL or imgui: `model` is what a snapshot is, `loading` reads one from a file, `timeline`
lays it out and paints columns of pixels, `analysis` answers questions, `query` takes SQL.
`splatview_viewer.kinds.snapshot.view` shows it.

    snapshot = load_snapshot("snapshot.pickle")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.kinds.snapshot.loading import load_snapshot
    from splatview_viewer.kinds.snapshot.model import Snapshot

__all__ = ["Snapshot", "expect", "load_snapshot"]


def expect(path: Path) -> None:
    """Have a thread load what a timeline is laid out with, if this is a snapshot that is about to be shown: that takes
    as long as reading a short one."""
    from threading import Thread

    from splatview_ipc.system.optional_packages import installed
    from splatview_viewer.core.errors import FileError
    from splatview_viewer.formats import find_format
    from splatview_viewer.kinds.snapshot.loading import FORMAT

    if not installed("numba"):
        return
    try:
        find_format(path, formats=(FORMAT,))
    except (FileError, OSError):  # the reader reports it
        return
    from splatview_viewer.kinds.snapshot.timeline import warm_up

    Thread(target=warm_up, name="kernels", daemon=True).start()


def __getattr__(name: str) -> object:
    if name == "load_snapshot":
        from splatview_viewer.kinds.snapshot.loading import load_snapshot

        return load_snapshot
    if name == "Snapshot":
        from splatview_viewer.kinds.snapshot.model import Snapshot

        return Snapshot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
