"""Pictures of scenes that CUDA alone draws, beside those that OpenGL shows, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.browser_rig import CAPTION, Rig, decoded, restful, until_ready
from support.view_cases import scene_view, view_pixels

from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.screen import Pane, Rect, read_pixels
from splatview_viewer.core.selection import Mask
from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at
from splatview_viewer.render.gsplat.renderer import GsplatRenderer
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen

pytestmark = pytest.mark.cuda
W = 638
H = 480
RECT = Rect(0, 0, W, H)


def camera_at(x: float) -> Camera:
    """Return a camera that looks at the ball from a little aside."""
    return Camera(look_at((x, 0, -4), (0, 0, 0)), intrinsics(50, W, H), W, H)


FRONT = camera_at(0.0)


@pytest.fixture(name="screen")
def screen_fixture() -> Iterator[OffscreenScreen]:
    screen = OffscreenScreen(W, H)
    yield screen
    error = screen.ctx.error
    screen.close()
    assert error == "GL_NO_ERROR"


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[Any]:
    view = scene_view(
        screen, GsplatRenderer(screen.ctx), background=(0.2, 0.3, 0.4), smooth=False
    )
    view.tick(1.0)
    view.update(ball())
    view.view.rig.use_camera(FRONT)
    yield view
    view.close()


def ball(n: int = 20_000, scale: float = 0.02, seed: int = 0) -> GaussianScene:
    g = torch.Generator().manual_seed(seed)
    scene = GaussianScene(
        torch.nn.functional.normalize(torch.randn(n, 3, generator=g), dim=-1).cuda(),
        torch.randn(n, 4, generator=g).cuda(),
        torch.full((n, 3), scale).cuda(),
        torch.full((n,), 0.6).cuda(),
        torch.rand(n, 3, generator=g).cuda(),
        torch.empty(n, 0, 3).cuda(),
        activated=True,
        sh_degree=0,
    )
    torch.cuda.synchronize()
    return scene


def draw(view: Any) -> torch.Tensor:
    pixels = view.draw_on_device(RECT, torch.cuda.current_device())
    assert pixels is not None, "left to OpenGL"
    return pixels


def assert_opengl_agrees(view: Any, screen: OffscreenScreen) -> None:
    """Check pictures against OpenGL's, also where they are read from the screen."""
    pixels = draw(view)
    screen.device_pictures.put(pixels, RECT)
    screen.present(CAPTION)
    seen = screen.pixels()[..., :3].astype(int)
    np.testing.assert_array_equal(seen, pixels.cpu().numpy())
    assert np.abs(view_pixels(view, screen) - seen).max() <= 1
    assert seen.std() > 5, "there is something in the picture"


def test_pictures_are_those_of_opengl(view: Any, screen: OffscreenScreen) -> None:
    assert_opengl_agrees(view, screen)
    view.handle(PointerPress(300, 200), RECT)
    now = 10.0
    for x in range(310, 390, 10):
        view.handle(PointerMove(x, 200), RECT)
        view.tick(now)
        now += 0.01
        assert_opengl_agrees(view, screen)
    view.handle(PointerRelease(390, 200), RECT)
    view.tick(now)
    assert view.view.picture.key.options.is_draft
    assert view.tick(now + 1.0)
    assert_opengl_agrees(view, screen)
    assert not view.view.picture.key.options.is_draft
    for k in range(1, 4):
        now += 2.0
        view.tick(now)
        view.update(ball(20_000 + 3 * k, seed=k))
        assert_opengl_agrees(view, screen)


def test_a_crowded_picture_is_drawn_again_until_it_is_whole(
    view: Any, screen: OffscreenScreen
) -> None:
    view.update(ball(2000, scale=0.5, seed=5))
    assert_opengl_agrees(view, screen)


def test_a_tool_that_paints_leaves_pictures_to_opengl(
    view: Any, screen: OffscreenScreen
) -> None:
    first = draw(view)
    view.view.change(chosen=Mask(b"\xff", 8, 8))
    assert view.draw_on_device(RECT, None) is None
    painted = view_pixels(view, screen)
    assert np.abs(painted - first.cpu().numpy().astype(int)).max() <= 1
    # What OpenGL has drawn is kept for as long as it is what the camera sees.
    view.view.change(chosen=None, background=(0.0, 0.0, 0.0))
    assert view.draw_on_device(RECT, None) is None
    view.view.rig.use_camera(camera_at(0.3))
    assert_opengl_agrees(view, screen)


def test_the_page_gets_what_cuda_drew(rig: Rig) -> None:
    """Between pictures that OpenGL drew, and in their place."""
    page_screen = rig.open(W + 100, H + 50)
    page = rig.pages[page_screen]
    pictures = page_screen.device_pictures
    assert pictures is not None, "made without nvJPEG"
    place = Rect(60, 20, W, H)
    panes = [Pane(1, place)]
    target: Any = page_screen
    scene = scene_view(target, GsplatRenderer(rig.ctx), smooth=False)
    scene.update(ball())
    scene.view.rig.use_camera(FRONT)
    for k in range(2):
        until_ready(page_screen)
        scene.view.rig.use_camera(camera_at(0.1 * k))
        pixels = scene.draw_on_device(place, pictures.gpu)
        assert pixels is not None
        pictures.put(pixels, place)
        page_screen.interface.present_pictures(panes, answers=True)
        picture = restful(page_screen, page)
        assert picture.box == (place.x, place.y, place.width, place.height)
        np.testing.assert_array_equal(decoded(picture), pixels.cpu().numpy())
        until_ready(page_screen)
        scene.view.change(background=(0.1 + 0.2 * k, 0.0, 0.0))
        scene.draw(page_screen.framebuffer, place)
        drawn = read_pixels(page_screen.framebuffer)
        page_screen.interface.present_pictures(panes, answers=True)
        expected = drawn[20 : 20 + H, 60 : 60 + W, :3]
        np.testing.assert_array_equal(decoded(restful(page_screen, page)), expected)
        scene.view.change(background=(0.0, 0.5, 0.1 + 0.2 * k))
    scene.close()
