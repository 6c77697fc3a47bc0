"""The kind of scenes that a function of the trainer's own draws, and its pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.kind import Kind, Link
from splatview_viewer.scene_view.training_link import CamerasLink

if TYPE_CHECKING:
    import moderngl

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.kinds.rendered.view import RenderedView


def _view(ctx: moderngl.Context, gpu_work: GpuWork) -> RenderedView:
    from splatview_viewer.kinds.rendered.content import RenderedContent
    from splatview_viewer.kinds.rendered.state import RenderedState
    from splatview_viewer.kinds.rendered.view import RenderedView

    return RenderedView(RenderedContent(ctx, gpu_work), RenderedState())


class PictureLink(Link):
    """Asks for the pictures that views of a scene need, and takes them."""

    def take(self, content: Any, stream: Any, frame: StreamFrame) -> bool:
        is_worker = bool(stream.info.over_run)
        return content.requests.take(frame, is_worker=is_worker)

    def drop(self, content: Any, stream: Any) -> None:
        content.textures.close_memory()

    def tend(self, content: Any, stream: Any, now: float) -> bool:
        if not stream.run.alive:
            return False
        draw = content.requests.next_request(stream.info.index, now)
        if draw is not None:
            stream.request_picture(draw)
        return content.requests.expects_answer


KIND = Kind(
    "rendered",
    view=_view,
    rank=0,
    compared=True,
    filmed=True,
    controlled=True,
    links=(
        CamerasLink("cameras"),
        PictureLink("picture", over=True, in_order=True, on_gpu=True),
    ),
)
PICTURE = Kind("picture")
"""Answers to requests over a drawn scene; it has no view of its own."""
