"""Pictures of a scene that CUDA alone draws, beside those that OpenGL shows.

A stand-in draws for CUDA; tests/cuda has the real thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.frames import cloud
from support.gpu_stand_ins import Drafter, Reader, scene_on_gpu, stand_in_for_cuda
from support.view_cases import RECT, scene_view, view_pixels
from support.viewer import Viewer

import splatview
from splatview_viewer.core.events import Wheel
from splatview_viewer.core.selection import Mask
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.screens.offscreen import OffscreenScreen

WHEEL_TURN = Wheel(20, 20, 1.0)


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch: pytest.MonkeyPatch, sharp: None) -> None:
    stand_in_for_cuda(monkeypatch)


@pytest.fixture
def reader(screen: OffscreenScreen) -> Reader:
    return Drafter(screen.ctx)


@pytest.fixture
def drawn_view(screen: OffscreenScreen, reader: Reader) -> Iterator[Any]:
    """Return a view that shows a scene in place, drawn without OpenGL."""
    view = scene_view(screen, reader, background=(0.2, 0.3, 0.4))
    view.tick(1.0)
    scene_on_gpu().show(view)
    draw(view)
    yield view
    view.close()


def draw(view: Any) -> np.ndarray:
    """Draw without OpenGL; return (H, W, 3) int."""
    return view.draw_on_device(RECT, 0).numpy().astype(int)


def assert_opengl_agrees(view: Any, screen: OffscreenScreen) -> None:
    """Check that OpenGL goes on with the picture as it is, and CUDA after it."""
    pixels = draw(view)
    key = view.view.picture.key
    camera = view.view.drawn_camera.key
    assert np.abs(view_pixels(view, screen) - pixels).max() <= 1
    assert view.view.picture.key == key
    assert view.view.drawn_camera.key == camera


def test_it_is_the_picture_that_opengl_draws(
    drawn_view: Any, screen: OffscreenScreen
) -> None:
    assert_opengl_agrees(drawn_view, screen)
    drawn_view.handle(WHEEL_TURN, RECT)
    assert drawn_view.view.is_moving
    assert_opengl_agrees(drawn_view, screen)
    drawn_view.tick(11.0)
    drawn_view.tick(20.0)
    assert not drawn_view.view.is_moving
    assert_opengl_agrees(drawn_view, screen)
    scene_on_gpu(1).show(drawn_view)
    assert_opengl_agrees(drawn_view, screen)


def test_it_is_drawn_again_only_where_it_changes(
    drawn_view: Any, reader: Reader
) -> None:
    pixels = drawn_view.draw_on_device(RECT, 0)
    drawings = reader.drawings
    assert drawn_view.draw_on_device(RECT, 0) is pixels
    assert reader.drawings == drawings
    drawn_view.view.change(background=(0.9, 0.1, 0.1))
    assert (draw(drawn_view) != pixels.numpy()).any()
    assert reader.drawings == drawings + 1


def test_a_draft_is_replaced_once_the_camera_rests(drawn_view: Any) -> None:
    drawn_view.handle(WHEEL_TURN, RECT)
    drawn_view.tick(11.0)
    draw(drawn_view)
    assert drawn_view.view.picture.key.options.is_draft
    assert not drawn_view.tick(11.4)
    assert drawn_view.tick(11.6)
    draw(drawn_view)
    assert not drawn_view.view.picture.key.options.is_draft


def test_it_is_drawn_again_where_gaussians_are_missing(
    drawn_view: Any, reader: Reader
) -> None:
    drawings = reader.drawings
    reader.lacks_next = True
    frame = scene_on_gpu(1)
    frame.show(drawn_view)
    draw(drawn_view)
    assert reader.drawings == drawings + 2
    assert frame.released


def test_an_overwritten_scene_is_never_shown(
    drawn_view: Any, screen: OffscreenScreen
) -> None:
    pixels = draw(drawn_view)
    torn = scene_on_gpu(1)
    torn.show(drawn_view)
    torn.is_intact = False
    np.testing.assert_array_equal(draw(drawn_view), pixels)
    assert torn.released
    assert drawn_view.wants.stale
    drawn_view.handle(WHEEL_TURN, RECT)
    np.testing.assert_array_equal(draw(drawn_view), pixels)
    np.testing.assert_array_equal(view_pixels(drawn_view, screen), pixels)
    np.testing.assert_array_equal(view_pixels(drawn_view, screen), pixels)
    scene_on_gpu(2).show(drawn_view)
    assert (draw(drawn_view) != pixels).any()


def show_depth(view: GaussianView) -> None:
    view.change(show="depth")


def show_alpha(view: GaussianView) -> None:
    view.change(show="alpha")


def choose(view: GaussianView) -> None:
    view.change(chosen=Mask(b"\xff", 8, 8))


def keep(view: GaussianView) -> None:
    view.draw_exactly()


@pytest.mark.parametrize("change", [show_depth, show_alpha, choose, keep])
def test_what_cuda_cannot_draw_alone_is_left_to_opengl(
    drawn_view: Any, screen: OffscreenScreen, change: Callable[[GaussianView], None]
) -> None:
    change(drawn_view.view)
    assert drawn_view.draw_on_device(RECT, 0) is None
    view_pixels(drawn_view, screen)
    assert drawn_view.view.picture.source is not None


def test_a_scene_on_another_gpu_is_left_to_opengl(drawn_view: Any) -> None:
    assert drawn_view.draw_on_device(RECT, 1) is None
    assert drawn_view.draw_on_device(RECT, None) is not None


def test_a_slow_scene_beside_a_training_is_moved_by_opengl(
    drawn_view: Any, screen: OffscreenScreen, reader: Reader
) -> None:
    governor = drawn_view.view.data.work.governor
    governor.account.share = 0.1
    governor.account.shared = True
    governor.record(("scene", RECT.width, RECT.height), 30.0)
    drawn_view.handle(WHEEL_TURN, RECT)
    drawings = reader.drawings
    assert drawn_view.draw_on_device(RECT, 0) is None
    view_pixels(drawn_view, screen)
    assert reader.drawings == drawings + 1, "it is not drawn twice"


# -- on a screen ---------------------------------------------------------------


def test_who_reads_the_screen_sees_what_opengl_would_have_drawn(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "splatview_viewer.kinds.gaussians.cache.choose_renderer", Reader
    )
    splatview.publish(cloud(), "scene", sh_degree=0)
    viewer.until_shows(GaussianView)
    pictures = viewer.screen.device_pictures
    viewer.user.mark()
    viewer.do()
    assert pictures.unread is not None
    pixels = viewer.pixels()
    picture = viewer.picture()
    assert pictures.unread is None

    def decline(*_: Any) -> None:
        pass

    monkeypatch.setattr(GaussianView, "draw_on_device", decline)
    viewer.user.mark()
    viewer.do()
    assert pictures.unread is None
    assert np.abs(viewer.picture() - picture).max() <= 1
    differs = np.abs(viewer.pixels() - pixels).max(-1) > 1
    assert differs.mean() < 0.02, "but for times, the interface over it is the same"
