"""Results that `annotate` sends, as a viewer reads them, and what a view draws of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from splatview.adapters.overlay import overlay_tensors
from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.kinds import check_frame
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import ShownView
from splatview_viewer.kinds.image.overlay import OverlayResult
from splatview_viewer.screens.offscreen import OffscreenScreen
from support.frames import remote


def annotation_tensors(**given: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the frame that `annotate` makes of this, once the receiver's own check has passed it."""
    tensors, meta = overlay_tensors(given)
    check_frame(
        "overlay",
        {k: (str(t.dtype)[6:], tuple(t.shape)) for k, t in tensors.items()},
        meta,
    )
    return tensors, meta


def texts(tensor: Any) -> list[str]:
    """Texts of a frame, each ended by a zero byte."""
    whole = bytes(tensor.tolist())
    assert whole == b"" or whole.endswith(b"\0")
    return [text.decode() for text in whole.split(b"\0")[:-1]]


def overlay_frame(version: int = 1, time_ns: int = 0, **given: Any) -> StreamFrame:
    """What `annotate` sends for this, computed on this version of the image."""
    tensors, meta = annotation_tensors(**given)
    meta |= {"version": version, "time_ns": time_ns}
    return StreamFrame(
        "overlay",
        1,
        0,
        meta,
        {k: remote(t) for k, t in tensors.items()},
        lambda: True,
        lambda: None,
    )


def result_of(frame: StreamFrame, shown: tuple[int, int] = (64, 48)) -> OverlayResult:
    from splatview_viewer.kinds.image.overlay import read_result

    result = read_result(frame, shown)
    assert result is not None
    return result


def overlay_pixels(view: ShownView, screen: OffscreenScreen) -> np.ndarray:
    """(H, W, 3) int: the image with its overlay, without words."""
    view.draw(screen.framebuffer, Rect(0, 0, *screen.size))
    assert screen.ctx.error == "GL_NO_ERROR"
    return screen.pixels()[..., :3].astype(int)
