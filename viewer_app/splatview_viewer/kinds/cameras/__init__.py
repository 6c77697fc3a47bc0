"""The view of training cameras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.kind import Kind, Link

if TYPE_CHECKING:
    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.kinds.cameras.view import CamerasView


def _view(ctx: Any, work: Any) -> CamerasView:
    from splatview_viewer.kinds.cameras.view import (
        CamerasContent,
        CamerasState,
        CamerasView,
    )

    return CamerasView(CamerasContent(ctx, work), CamerasState())


class PartLink(Link):
    """Feeds photographs, and the number of the camera that is trained with.

    They are published over a stream of cameras.
    """

    def take(self, content: Any, stream: Any, frame: StreamFrame) -> bool:
        return content.take_update(frame)

    def tend(self, content: Any, stream: Any, now: float) -> bool:
        if stream.shape == ():
            for camera, side in content.photos.requests(now):
                stream.request_photos(camera, side)
        return False


def _fact(content: Any) -> str:
    """Return the number of cameras."""
    if content.cameras is None:
        return ""
    return f"{len(content.cameras):,}"


KIND = Kind(
    "cameras",
    view=_view,
    rank=2,
    still="plot",
    holds_many=True,
    fact=_fact,
    links=(PartLink("cameras", over=True),),
)
