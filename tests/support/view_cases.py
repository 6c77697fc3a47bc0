"""What the tests of views share: a rectangle, and what a view draws in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.geometry.controls import Rect
from splatview_viewer.shell.panel import Panel
from support.wait import PATIENCE, turns

if TYPE_CHECKING:
    import numpy as np

    from splatview_viewer.core.view import View
    from splatview_viewer.screens.offscreen import OffscreenScreen

W, H = 64, 48
RECT = Rect(0, 0, W, H)
WRITTEN = ("scalars", "memory")
"""The kinds whose picture is what is written over it."""


def shown(view: View, screen: OffscreenScreen, rect: Rect | None = None) -> np.ndarray:
    """(H, W, 3) int: what the view draws; all of it, of one whose pictures are painted by threads."""
    rect = rect or Rect(0, 0, *screen.size)
    for _ in turns("the picture is complete"):
        view.draw(screen.framebuffer, rect)
        if getattr(view, "complete", True):
            break
        view.wait(PATIENCE)  # type: ignore[attr-defined]
    if view.kind in WRITTEN:
        panel = Panel()
        for _ in range(2):  # words find their places
            panel.draw_over(screen.framebuffer, lambda _, scale: view.over(rect, scale), 1.0)
        panel.close()
    return screen.pixels()[..., :3].astype(int)
