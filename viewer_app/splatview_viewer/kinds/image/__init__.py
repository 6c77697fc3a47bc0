"""Pictures and arrays of numbers, with the overlays that belong to one of their versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.kind import Kind, Link

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.kinds.image.view import ImageView


def _view(ctx: moderngl.Context, work: Any) -> ImageView:
    from splatview_viewer.kinds.image.view import ImageContent, ImageState, ImageView

    return ImageView(ImageContent(ctx, work), ImageState())


KIND = Kind("image", view=_view, compared=True, holds=lambda value: isinstance(value, np.ndarray),
            links=(Link("overlay", over=True),))
OVERLAY = Kind("overlay")
"""Boxes, points, lines, masks and words over an image; it has no view of its own."""
