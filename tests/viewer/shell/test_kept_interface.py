"""The interface that is shown over new versions as it was drawn for the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.viewer import Viewer
from support.wait import clock

import splatview
from splatview_viewer.core.events import PointerMove
from splatview_viewer.core.screen import read_pixels
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.shell.interface import Interface

_FRAME_S = 1 / 60


class _Pictures:
    """A viewer of a picture, whose next ones are drawn at times that a test names."""

    def __init__(self, viewer: Viewer, patch: pytest.MonkeyPatch) -> None:
        self.viewer = viewer
        self.user = viewer.user
        self.now = 0.0
        self.drawings = 0
        """Times that the interface was drawn."""
        draw = Interface.draw

        def draw_counted(*args: Any, **options: Any) -> bool:
            self.drawings += 1
            return draw(*args, **options)

        patch.setattr(Interface, "draw", draw_counted)
        splatview.publish(torch.full((40, 60, 3), 90, dtype=torch.uint8), "camera")
        viewer.until_shows(ImageView)
        self.settle()

    def settle(self) -> None:
        """Draw the interface until it may stay: after two pictures that come fast."""
        self.now = clock()
        self.user.mark(3)
        for _ in range(3):
            self.show()
        self.show_next()

    def show(self) -> int:
        """Draw a picture and present it; return how often the interface was drawn."""
        previous = self.drawings
        self.user.draw(self.now)
        self.user.present(self.now)
        return self.drawings - previous

    def show_next(self) -> int:
        """Show the next one, as `show`."""
        self.now += _FRAME_S
        self.user.mark_pictures()
        return self.show()

    def pixels(self) -> np.ndarray:
        return read_pixels(self.viewer.screen.framebuffer).copy()


@pytest.fixture
def pictures(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> _Pictures:
    return _Pictures(viewer, monkeypatch)


def test_picture_is_shown_at_once_and_the_interface_tells_of_it_soon(
    pictures: _Pictures,
) -> None:
    user = pictures.user
    first_pixels = pictures.pixels()
    assert pictures.show_next() == 0
    np.testing.assert_array_equal(pictures.pixels(), first_pixels)
    user.tick(pictures.now + 0.04)
    assert not user.dirty
    user.tick(pictures.now + 0.06)
    assert user.dirty == 1
    user.draw(pictures.now)
    last_pixels = pictures.pixels()
    user.mark()
    user.draw(pictures.now)
    np.testing.assert_array_equal(pictures.pixels(), last_pixels)


def test_interface_is_drawn_twenty_times_a_second_after_fast_pictures(
    pictures: _Pictures,
) -> None:
    drawings = sum(pictures.show_next() for _ in range(60))
    assert 15 <= drawings <= 25
    assert not pictures.user.dirty


def move_pointer(viewer: Viewer) -> None:
    viewer.user.take(PointerMove(5, 300), clock())


def resize(viewer: Viewer) -> None:
    viewer.screen.resize(900, 640)


def scale(viewer: Viewer) -> None:
    viewer.screen.resize(*viewer.screen.size, scale=1.5)


def drag(viewer: Viewer) -> None:
    viewer.user.mark_drag()


def light(viewer: Viewer) -> None:
    viewer.user.set_light(True)


@pytest.mark.parametrize("change", [move_pointer, resize, scale, drag, light])
def test_whatever_else_changes_is_seen_in_the_next_picture(
    pictures: _Pictures, change: Callable[[Viewer], None]
) -> None:
    assert pictures.show_next() == 0
    change(pictures.viewer)
    assert pictures.show_next() >= 1


def test_text_over_a_picture_is_always_that_of_the_picture(
    pictures: _Pictures,
) -> None:
    layers = pictures.viewer.image.data.layers
    layers.camera = "camera 30.0/s"
    assert [pictures.show_next() for _ in range(4)] == [1, 1, 1, 1]
    layers.camera = ""
    assert pictures.show_next() == 1
    pictures.settle()
    assert pictures.show_next() == 0
