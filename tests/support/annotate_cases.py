"""Results that `annotate` sends, as a viewer reads them, and the pictures of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from splatview.adapters.overlay import overlay_tensors
from splatview_ipc.control.frame import StreamFrame
from splatview_ipc.kinds import check_frame
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.shown_view import ShownView
from splatview_viewer.kinds.image.overlay import OverlayResult
from splatview_viewer.screens.offscreen import OffscreenScreen
from support.frames import frame_of


def annotation_tensors(
    **annotations: Any,
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return tensors and metadata that `annotate` makes, checked as the receiver does."""
    tensors, meta = overlay_tensors(annotations)
    forms = {}
    for name, tensor in tensors.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        forms[name] = (dtype, tuple(tensor.shape))
    check_frame("overlay", forms, meta)
    return tensors, meta


def texts(tensor: Any) -> list[str]:
    """Return the texts of a frame, each of which ends with a zero byte."""
    data = bytes(tensor.tolist())
    assert data == b"" or data.endswith(b"\0")
    return [text.decode() for text in data.split(b"\0")[:-1]]


def overlay_frame(
    version: int = 1, time_ns: int = 0, **annotations: Any
) -> StreamFrame:
    """Make the frame that `annotate` sends of a version of the image."""
    tensors, meta = annotation_tensors(**annotations)
    frame = frame_of("overlay", tensors, **meta)
    frame.meta.update(version=version, time_ns=time_ns)
    return frame


def result_of(
    frame: StreamFrame, image_size: tuple[int, int] = (64, 48)
) -> OverlayResult:
    from splatview_viewer.kinds.image.overlay import read_result

    result = read_result(frame, image_size)
    assert result is not None
    return result


def overlay_pixels(view: ShownView, screen: OffscreenScreen) -> np.ndarray:
    """Draw the image with its overlay, without text; return (H, W, 3) int."""
    view.draw(screen.framebuffer, Rect(0, 0, *screen.size))
    assert screen.ctx.error == "GL_NO_ERROR"
    return screen.pixels()[..., :3].astype(int)
