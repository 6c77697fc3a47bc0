"""The memory of a GPU over time, as a running program publishes it."""

from __future__ import annotations

from typing import Any

from splatview_viewer.core.kind import Kind


def _view(ctx: Any, work: Any) -> Any:
    from splatview_viewer.kinds.memory.view import MemoryData, MemoryState, MemoryView

    return MemoryView(MemoryData(), MemoryState())


KIND = Kind("memory", view=_view, rank=2, still="plot", strip=True, snapshots=True)
