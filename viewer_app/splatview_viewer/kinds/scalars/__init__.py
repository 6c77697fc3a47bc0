"""Numbers over the course of a training: their curves, smoothed, in columns of pixels."""

from __future__ import annotations

from typing import Any

from splatview_viewer.core.kind import Kind
from splatview_viewer.core.quantities import count_text


def _view(ctx: Any, work: Any) -> Any:
    from splatview_viewer.kinds.scalars.view import (
        ScalarsData,
        ScalarsState,
        ScalarsView,
    )

    return ScalarsView(ScalarsData(), ScalarsState())


def _fact(content: Any) -> str:
    """Return the number of curves."""
    count = len(content.curves.all)
    if not count:
        return ""
    return count_text(count, "curve")


KIND = Kind(
    "scalars",
    view=_view,
    rank=2,
    still="plot",
    strip=True,
    plots_counts=True,
    fact=_fact,
)
