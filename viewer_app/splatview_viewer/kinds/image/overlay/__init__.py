"""Boxes, points, lines, masks and words over an image that belong to one of its versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.kind import Kind, Link

if TYPE_CHECKING:
    from splatview_ipc.control.frame import Frame


class OverlayLink(Link):
    """A layer of the image's content for each overlay stream."""

    def take(self, content: Any, stream: Any, frame: Frame) -> bool:
        return content.layers.take(id(stream), frame)

    def tend(self, content: Any, stream: Any, now: float) -> None:
        if (layer := content.layers.get(id(stream))) is not None:
            layer.ended = not stream.run.alive
            layer.rate_hz = stream.rate_hz or layer.rate_hz

    def drop(self, content: Any, stream: Any) -> None:
        content.layers.drop(id(stream))

    def trouble(self, content: Any, stream: Any) -> str:
        layer = content.layers.get(id(stream))
        return "" if layer is None or layer.result is None else layer.result.trouble


KIND = Kind("overlay")
OVER = OverlayLink("overlay", over=True, still=True)
"""Overlay over an image."""
