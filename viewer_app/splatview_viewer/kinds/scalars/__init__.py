"""Numbers over the course of a training: their curves, smoothed, in columns of pixels."""

from __future__ import annotations

from typing import Any

from splatview_viewer.core.kind import Kind


def _view(ctx: Any, work: Any) -> Any:
    from splatview_viewer.kinds.scalars.view import (
        ScalarsData,
        ScalarsState,
        ScalarsView,
    )

    return ScalarsView(ScalarsData(), ScalarsState())


KIND = Kind("scalars", view=_view, rank=2, still="plot", strip=True, plots_counts=True)
