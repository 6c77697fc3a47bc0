"""What the tests of views share: a context, a rectangle, and what a view draws in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from viewer_app.controls import Rect
from viewer_app.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from viewer_app.views.base import View

W, H = 64, 48
RECT = Rect(0, 0, W, H)


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
    """(H, W, 3) int: what the view draws."""
    view.draw(screen.framebuffer, rect or Rect(0, 0, *screen.size))
    return screen.pixels()[..., :3].astype(int)
