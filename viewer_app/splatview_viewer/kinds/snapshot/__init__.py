"""The CUDA allocator's memory over time: what a snapshot holds, as columns, and everything that is worked out of it.

`model` is what a snapshot is, `loading` reads one from a file, `timeline` lays it out and paints columns of pixels,
`analysis` answers questions, `query` takes SQL; none of them draws. `view` shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_ipc.system.optional_packages import installed, require
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.kind import Kind

if TYPE_CHECKING:
    from pathlib import Path

    import moderngl

    from splatview_viewer.kinds.snapshot.view import SnapshotView

TIMELINE = "memory snapshots need"
SQL = "SQL over memory snapshots needs"
"""Subjects of the errors for a missing numba and a missing DuckDB, of the extra `memory`."""


def check_timeline() -> None:
    """Raise ViewerError unless timelines can be laid out and painted. Imports nothing."""
    require(TIMELINE, "numba", error=ViewerError)


def check_sql() -> None:
    """Raise ViewerError unless snapshots can be queried. Imports nothing."""
    require(SQL, "duckdb", error=ViewerError)


def _view(ctx: moderngl.Context, work: Any) -> SnapshotView:
    from splatview_viewer.kinds.snapshot.state import SnapshotState
    from splatview_viewer.kinds.snapshot.view import SnapshotData, SnapshotView

    return SnapshotView(SnapshotData(ctx), SnapshotState())


def _holds(value: Any) -> bool:
    from splatview_viewer.kinds.snapshot.model import MemorySnapshot

    return isinstance(value, MemorySnapshot)


KIND = Kind("snapshot", view=_view, still="plot", holds=_holds)


def expect(path: Path) -> None:
    """Have a thread load what a timeline is painted with, if this is named like a snapshot, which is about to be shown:
    that takes as long as reading a short one.
    """
    if path.suffix in (".pickle", ".pkl") and installed("numba"):
        from splatview_viewer.kinds.snapshot.timeline.compiled import kernels, pool

        pool().submit(kernels)
