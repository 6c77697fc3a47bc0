"""Numbers over the course of a training: their curves, smoothed, in columns of pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core.kind import Kind

if TYPE_CHECKING:
    from splatview_viewer.kinds.scalars.view import ScalarsView


def _view() -> type[ScalarsView]:
    from splatview_viewer.kinds.scalars.view import ScalarsView

    return ScalarsView


KIND = Kind("scalars", _view, rank=2, still="plot", strip=True, counts=True)
