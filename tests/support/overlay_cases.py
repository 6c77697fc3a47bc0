"""Frames of kind overlay, as `annotate` would send them, and what a view draws of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview.ipc.frames import Frame
from splatview.viewer_app.controls import Rect
from support.annotate_cases import made
from support.frames import remote

if TYPE_CHECKING:
    import numpy as np
    import torch

    from splatview.viewer_app.screens.offscreen import OffscreenScreen
    from splatview.viewer_app.views._overlay.result import Result
    from splatview.viewer_app.views.image import ImageView


def overlay_frame(version: int = 1, time_ns: int = 0, **given: Any) -> Frame:
    """What `annotate` sends for this, computed on this version of the image."""
    tensors, meta = made(**given)
    return frame_with(tensors, version=version, time_ns=time_ns, **meta)


def frame_with(tensors: dict[str, torch.Tensor], *, intact: bool = True, **meta: Any) -> Frame:
    return Frame("overlay", 1, 0, meta, {k: remote(t) for k, t in tensors.items()}, lambda: intact, lambda: None)


def result_of(frame: Frame, shown: tuple[int, int] = (64, 48)) -> Result:
    from splatview.viewer_app.views._overlay.result import read_result

    result = read_result(frame, shown)
    assert result is not None
    return result


def seen(view: ImageView, screen: OffscreenScreen) -> np.ndarray:
    """(H, W, 3) int: the image with its overlay, without words."""
    view.draw(screen.framebuffer, Rect(0, 0, *screen.size))
    assert screen.ctx.error == "GL_NO_ERROR"
    return screen.pixels()[..., :3].astype(int)
