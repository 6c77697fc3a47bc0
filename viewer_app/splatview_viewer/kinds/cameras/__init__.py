"""The view of training cameras."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core.kind import Kind

if TYPE_CHECKING:
    from splatview_viewer.kinds.cameras.view import CamerasView


def _view() -> type[CamerasView]:
    from splatview_viewer.kinds.cameras.view import CamerasView

    return CamerasView


KIND = Kind("cameras", _view, rank=2, still="plot")
