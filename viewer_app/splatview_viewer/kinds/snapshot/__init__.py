"""The view of memory snapshots, as files or as a trainer publishes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_ipc.system.optional_packages import is_installed
from splatview_viewer.core.kind import Kind

if TYPE_CHECKING:
    from pathlib import Path

    import moderngl

    from splatview_viewer.kinds.snapshot.view import SnapshotView


def _view(ctx: moderngl.Context, gpu_work: Any) -> SnapshotView:
    """Return a new view."""
    from splatview_viewer.kinds.snapshot.state import SnapshotState
    from splatview_viewer.kinds.snapshot.view import SnapshotData, SnapshotView

    return SnapshotView(SnapshotData(ctx), SnapshotState())


def _holds(value: Any) -> bool:
    """Return whether a value is a snapshot."""
    from splatview_viewer.snapshot.model import MemorySnapshot

    return isinstance(value, MemorySnapshot)


def _fact(data: Any) -> str:
    """Return what the list of streams says of a snapshot."""
    return "snapshot"


KIND = Kind(
    "snapshot",
    view=_view,
    still="plot",
    holds=_holds,
    fed_unseen=True,
    fact=_fact,
)


def expect(path: Path) -> None:
    """Load in a thread what paints timelines, if a file is named like a snapshot.

    That takes as long as reading a short one, which is about to be shown.
    """
    if path.suffix in (".pickle", ".pkl") and is_installed("numba"):
        from splatview_viewer.snapshot.timeline.compiled import kernels, pool

        pool().submit(kernels)
