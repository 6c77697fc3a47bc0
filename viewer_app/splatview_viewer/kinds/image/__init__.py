"""The kinds of stream that are pictures, and overlays over them."""

from __future__ import annotations

from typing import Any

import numpy as np

from splatview_viewer.core.kind import Kind, Link


def _view(ctx: Any, work: Any) -> Any:
    from splatview_viewer.kinds.image.view import ImageContent, ImageState, ImageView

    return ImageView(ImageContent(ctx, work), ImageState())


class OverlayLink(Link):
    """Makes a layer of the image's content for each overlay stream."""

    def take(self, content: Any, stream: Any, frame: Any) -> bool:
        return content.layers.take(id(stream), frame)

    def tend(self, content: Any, stream: Any, now: float) -> bool:
        layer = content.layers.get(id(stream))
        if layer is not None:
            layer.has_ended = not stream.run.alive
            layer.rate_hz = stream.rate_hz or layer.rate_hz
        return False

    def drop(self, content: Any, stream: Any) -> None:
        content.layers.drop(id(stream))

    def trouble(self, content: Any, stream: Any) -> str:
        layer = content.layers.get(id(stream))
        if layer is None:
            return ""
        return layer.result.trouble


KIND = Kind(
    "image",
    view=_view,
    compared=True,
    holds=lambda value: isinstance(value, np.ndarray),
    links=(OverlayLink("overlay", over=True, still=True),),
)
OVERLAY = Kind("overlay")
"""Boxes, points, lines, masks and text over an image; it has no view of its own."""
