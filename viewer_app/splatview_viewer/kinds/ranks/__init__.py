"""The list of a folder's memory snapshots: the peaks of the processes of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.kind import Kind
from splatview_viewer.core.quantities import count_text

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.kinds.ranks.view import RanksView


def _view(ctx: moderngl.Context, gpu_work: Any) -> RanksView:
    """Return a new view."""
    from splatview_viewer.kinds.ranks.view import RanksData, RanksState, RanksView

    return RanksView(RanksData(), RanksState())


def _holds(value: Any) -> bool:
    """Return whether a value is such a list."""
    from splatview_viewer.snapshot.loading.ranks import RankTable

    return isinstance(value, RankTable)


def _fact(data: Any) -> str:
    """Return the number of the files."""
    return count_text(len(data.ranks), "rank")


KIND = Kind("ranks", view=_view, rank=0, holds=_holds, fact=_fact)
