"""Numbers over the course of a training: their curves, smoothed, in columns of pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.kind import Kind

if TYPE_CHECKING:
    from splatview_viewer.kinds.scalars.view import ScalarsView


def _view(ctx: Any, work: Any) -> ScalarsView:
    from splatview_viewer.kinds.scalars.view import ScalarsData, ScalarsState, ScalarsView

    return ScalarsView(ScalarsData(), ScalarsState())


KIND = Kind("scalars", view=_view, rank=2, still="plot", strip=True, counts=True)
