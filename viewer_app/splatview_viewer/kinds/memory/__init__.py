"""The memory of a GPU over time, as a running program publishes it."""

from __future__ import annotations

from typing import Any

from splatview_viewer.core.kind import Kind
from splatview_viewer.core.quantities import size_text


def _view(ctx: Any, work: Any) -> Any:
    from splatview_viewer.kinds.memory.view import MemoryData, MemoryState, MemoryView

    return MemoryView(MemoryData(), MemoryState())


def _fact(content: Any) -> str:
    """Return the memory that is allocated now."""
    history = content.history
    return size_text(history.newest("allocated" if history.on_gpu else "host"))


KIND = Kind(
    "memory",
    view=_view,
    rank=2,
    still="plot",
    strip=True,
    snapshots=True,
    fact=_fact,
)
