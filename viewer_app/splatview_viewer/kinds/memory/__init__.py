"""The memory of a GPU over time, as a running program publishes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.kind import Kind

if TYPE_CHECKING:
    from splatview_viewer.kinds.memory.view import MemoryView


def _view(ctx: Any, work: Any) -> MemoryView:
    from splatview_viewer.kinds.memory.view import MemoryData, MemoryState, MemoryView

    return MemoryView(MemoryData(), MemoryState())


KIND = Kind("memory", view=_view, rank=2, still="plot", strip=True, snapshots=True)
