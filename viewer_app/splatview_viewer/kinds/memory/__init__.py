"""The memory of a GPU over time, as a running program publishes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core.kind import Kind

if TYPE_CHECKING:
    from splatview_viewer.kinds.memory.view import MemoryView


def _view() -> type[MemoryView]:
    from splatview_viewer.kinds.memory.view import MemoryView

    return MemoryView


KIND = Kind("memory", _view, rank=2, still="plot", strip=True, snapshots=True)
