"""What the tests of views share: a context, a rectangle, and what a view draws in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from splatview.viewer_app.controls import Rect
from splatview.viewer_app.interface.panel import Panel
from splatview.viewer_app.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from splatview.viewer_app.views.base import View

W, H = 64, 48
RECT = Rect(0, 0, W, H)
WRITTEN = ("scalars",)
"""The kinds whose picture is what is written over it."""


@pytest.fixture(scope="module")
def module_screen() -> Iterator[OffscreenScreen]:
    screen = OffscreenScreen(W, H)
    yield screen
    screen.close()


@pytest.fixture(name="screen")
def screen_fixture(module_screen: OffscreenScreen) -> Iterator[OffscreenScreen]:
    """W by H pixels; a test that leaves an error of OpenGL behind fails."""
    module_screen.resize(W, H, 1.0)
    module_screen.framebuffer.clear(0.0, 1.0, 0.0, 1.0)
    yield module_screen
    assert module_screen.ctx.error == "GL_NO_ERROR"


def shown(view: View, screen: OffscreenScreen, rect: Rect | None = None) -> np.ndarray:
    """(H, W, 3) int: what the view draws; all of it, of one whose pictures are painted by threads."""
    rect, end = rect or Rect(0, 0, *screen.size), time.monotonic() + 120
    view.draw(screen.framebuffer, rect)
    while not getattr(view, "complete", True):
        assert time.monotonic() < end
        view.wait(1.0)  # type: ignore[attr-defined]
        view.draw(screen.framebuffer, rect)
    if view.kind in WRITTEN:
        panel = Panel()
        for _ in range(2):  # words find their places
            panel.draw_over(screen.framebuffer, lambda _, scale: view.over(rect, scale), 1.0)
        panel.close()
    return screen.pixels()[..., :3].astype(int)
