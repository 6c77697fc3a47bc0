"""Pictures of what is written over with words: memory snapshots, and the memory of a running trainer. Without a
screen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.settings import ViewSettings
from splatview_viewer.geometry.controls import Rect
from splatview_viewer.kinds import make_view

if TYPE_CHECKING:
    import numpy as np

    from splatview_viewer.core.view import Value
    from splatview_viewer.screens.offscreen import OffscreenScreen

PATIENCE = 300.0
"""Seconds within which a picture is complete: ten million events take a few."""
_MOST = 8
"""Pictures drawn one after the other until nothing changes by drawing: words find their places."""


def draw_plot(screen: OffscreenScreen, kind: str, value: Value, size: tuple[int, int]) -> np.ndarray | None:
    """A picture of a value of this kind with its axes and words, once everything in it is worked out.

    Args:
        screen: is made as large as the picture.
        kind: "snapshot", "memory", "scalars" or "cameras".
        value: a Snapshot, or a frame of a stream.
        size: width and height in pixels.

    Returns uint8 (H, W, 4); None when the writer overwrote the frame meanwhile.

    Raises:
        ViewerError: what cannot be shown, or is not complete within `PATIENCE`.
    """
    from splatview_viewer.shell.panel import Panel

    view = make_view(kind, screen.ctx, ViewSettings())
    panel = None
    try:
        if not view.update(value):
            return None
        panel = Panel()
        screen.resize(*size)
        rect = Rect(0, 0, *size)
        wait = getattr(view, "wait", None)  # of those that work on a picture while others are drawn
        end = time.monotonic() + PATIENCE
        left = _MOST
        while left > 0:
            changes: list[bool] = []
            view.draw(screen.framebuffer, rect)
            panel.draw_over(screen.framebuffer, lambda r, s, out=changes: out.append(view.over(r, s)) or False, 1.0)
            if wait is not None and not getattr(view, "complete", True):
                if time.monotonic() > end:
                    raise ViewerError(f"the picture was not complete within {PATIENCE:g} s")
                wait(end - time.monotonic())
                left = _MOST
            elif any(changes):
                left -= 1
            else:
                break
        if fault := getattr(view, "fault", ""):
            raise ViewerError(fault)
        return screen.pixels()
    finally:
        if panel is not None:
            panel.close()
        view.close()
