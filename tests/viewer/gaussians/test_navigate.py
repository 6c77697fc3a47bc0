"""The tool that moves a scene's camera, with flights, bookmarks and axes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from imgui_bundle import imgui
from support.frames import gaussian_frame
from support.view_cases import press_shortcut, scene_view, view_pixels
from support.wait import wait_until

from splatview_viewer.core.events import (
    Key,
    PointerMove,
    PointerPress,
    PointerRelease,
    Text,
    Wheel,
)
from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.surface import Surface

RECT = Rect(20, 10, 400, 300)
FRONT = Camera(look_at((0.0, 0.0, -5.0), (0, 0, 0)), intrinsics(50, 400, 300), 400, 300)
SIDE = Camera(look_at((5.0, -1.0, 0.0), (0, 0, 0)), intrinsics(30, 400, 300), 400, 300)
CENTERS = [(0.0, 0.0, 0.0), (1.0, 0.5, 2.0)]


def balls(centers: np.ndarray) -> dict[str, torch.Tensor]:
    """Return red, round, nearly opaque Gaussians at centers (N, 3)."""
    n = len(centers)
    return {
        "means": torch.tensor(centers, dtype=torch.float32),
        "quats": torch.tensor([[1.0, 0, 0, 0]]).repeat(n, 1),
        "scales": torch.full((n, 3), math.log(0.2)),
        "opacities": torch.full((n,), 8.0),
        "rgb": torch.tensor([[1.0, 0, 0]]).repeat(n, 1),
    }


@pytest.fixture(name="view")
def view_fixture(screen: OffscreenScreen) -> Iterator[Any]:
    """Return a view of two balls, seen from the front."""
    screen.resize(440, 330, 1.0)
    view: Any = scene_view(screen)
    view.messages = []
    view.view.host = Host(view.messages.append, name="scene")
    view.update(gaussian_frame(balls(np.array(CENTERS)), color="rgb"))
    view_pixels(view, screen, RECT)
    view.view.rig.use_camera(FRONT)
    view_pixels(view, screen, RECT)
    yield view
    view.close()


def viewmat(view: Any) -> np.ndarray:
    camera = view.view.rig.camera(RECT)
    assert camera is not None
    return camera.viewmat


def arrive(view: Any, start: float = 50.0) -> None:
    """Let time pass until the camera rests."""
    assert any(not view.tick(start + i / 60) for i in range(200)), "it never rests"


def messages(view: Any) -> str:
    return " | ".join(view.messages)


# -- flights -------------------------------------------------------------------


def test_flight_ends_in_exactly_the_requested_camera(view: Any) -> None:
    shift = np.array([[0, 0, 31.0], [0, 0, -17], [0, 0, 0]])
    off_center = replace(SIDE, K=SIDE.K + shift)
    start = viewmat(view)
    view.view.rig.fly_to(off_center)
    np.testing.assert_allclose(viewmat(view), start, atol=1e-9)
    assert view.tick(10.0)
    assert view.tick(10.2)
    midway = viewmat(view)
    assert np.abs(midway - start).max() > 0.1
    assert np.abs(midway - off_center.viewmat).max() > 0.1
    arrive(view, 10.25)
    camera = view.view.rig.camera(RECT)
    assert camera is not None
    assert camera.key == off_center.key
    assert not view.tick(20.0)


@pytest.mark.parametrize(
    "event", [PointerPress(200, 100), Wheel(200, 100, 1.0), Key("w")]
)
def test_user_interrupts_a_flight(view: Any, event: Any) -> None:
    view.view.rig.fly_to(SIDE)
    view.tick(10.0)
    view.tick(10.2)
    view.handle(event, RECT)
    view.handle(Key("w", False), RECT)
    arrive(view, 10.21)
    assert np.abs(viewmat(view) - SIDE.viewmat).max() > 0.1


# -- keys that are held --------------------------------------------------------


def test_flying_looks_around_and_the_wheel_sets_its_speed(view: Any) -> None:
    press_shortcut(view, "O")
    orbit = view.view.rig.orbit
    position = orbit.position
    for event in (
        PointerPress(200, 100),
        PointerMove(250, 100),
        PointerRelease(250, 100),
    ):
        view.handle(event, RECT)
    np.testing.assert_allclose(orbit.position, position, atol=1e-9)
    assert np.abs(viewmat(view) - FRONT.viewmat).max() > 0.1
    start = viewmat(view)
    for dy in (2.0, -1.0):
        assert view.handle(Wheel(200, 100, dy), RECT)
    np.testing.assert_array_equal(viewmat(view), start)
    assert "Speed" not in messages(view)
    view.tick(1e9)
    view.tick(1e9 + 1)
    # The speed is told once, when the wheel rests.
    assert messages(view).count("Speed 1.1x") == 1
    press_shortcut(view, "O")
    view.handle(Wheel(200, 100, 2.0), RECT)
    assert np.abs(viewmat(view) - start).max() > 0.1


# -- the pivot -----------------------------------------------------------------


def test_double_click_orbits_around_the_point_below_it(view: Any) -> None:
    rotation = FRONT.viewmat[:3, :3]
    local = rotation @ CENTERS[1] + FRONT.viewmat[:3, 3]
    x = RECT.x + 200 + FRONT.K[0, 0] * local[0] / local[2]
    y = RECT.y + 150 + FRONT.K[1, 1] * local[1] / local[2]
    for clicks in (1, 2):
        view.handle(PointerPress(x, y, clicks=clicks), RECT)
        view.handle(PointerRelease(x, y), RECT)

    def is_flying() -> bool:
        return view.tick(50.0)

    # The flight begins when the point is known.
    wait_until(is_flying)
    arrive(view)
    orbit = view.view.rig.orbit
    np.testing.assert_allclose(orbit.target, CENTERS[1], atol=0.1)
    np.testing.assert_allclose(orbit.rotation, rotation, atol=1e-9)
    assert orbit.distance == pytest.approx(local[2], abs=0.1)


def test_double_click_on_a_failed_renderer_says_why_nothing_is_found(view: Any) -> None:
    view.view.data.renderer.close()
    start = viewmat(view)
    view.handle(PointerPress(200, 150, clicks=2), RECT)
    assert "this renderer is closed" in messages(view)
    view.tick(50.0)
    np.testing.assert_array_equal(viewmat(view), start)


# -- up ------------------------------------------------------------------------


def ground() -> dict[str, torch.Tensor]:
    """Return a floor in a world where x points up, and a heap on it."""
    random = np.random.default_rng(0)
    centers = random.uniform(-3, 3, (3000, 3)) * [0.001, 1, 1]
    heap = random.normal(0, 0.4, (len(centers[::4]), 3))
    heap[:, 0] += 1.2
    centers[::4] = heap
    return balls(centers)


@pytest.fixture(name="fresh")
def fresh_fixture(screen: OffscreenScreen) -> Iterator[Any]:
    """Return a view that has shown nothing yet."""
    screen.resize(440, 330, 1.0)
    view = scene_view(screen)
    yield view
    view.close()


def test_up_comes_from_the_ground_unless_the_user_sets_it(
    view: Any, fresh: Any, screen: OffscreenScreen
) -> None:
    fresh.update(gaussian_frame(ground(), color="rgb"))
    view_pixels(fresh, screen, RECT)
    np.testing.assert_array_equal(fresh.view.rig.orbit.up, (1, 0, 0))
    # In the picture, x is up.
    assert viewmat(fresh)[1, 0] < 0
    # `grab` resets the camera for each picture.
    fresh.view.rig.reset_to(None)
    view_pixels(fresh, screen, RECT)
    np.testing.assert_array_equal(fresh.view.rig.orbit.up, (1, 0, 0))
    fresh.view.rig.up_axis.set_by_user(np.array([0.0, 0.0, 1.0]))
    fresh.view.rig.frame_scene()
    view_pixels(fresh, screen, RECT)
    follower = fresh.another_view()
    follower.follow(fresh, alike=True)
    for shown_view in (fresh, follower):
        np.testing.assert_array_equal(shown_view.view.rig.orbit.up, (0, 0, 1))
    follower.close()
    # Two balls stand on nothing.
    np.testing.assert_array_equal(view.view.rig.orbit.up, (0, -1, 0))


@pytest.mark.parametrize("cameras_first", [True, False])
def test_up_of_the_file_goes_before_ground_and_cameras(
    cameras_first: bool, fresh: Any, screen: OffscreenScreen
) -> None:
    means, quats, scales, opacities, sh0 = ground().values()
    shN = torch.zeros(len(means), 0, 3)
    scene = GaussianScene(means, quats, scales, opacities, sh0, shN, up=(0, 0, -1))
    up_axis = fresh.view.rig.up_axis
    if cameras_first:
        up_axis.use_cameras(np.eye(4)[None])
    fresh.update(scene)
    view_pixels(fresh, screen, RECT)
    up_axis.use_cameras(np.eye(4)[None])
    view_pixels(fresh, screen, RECT)
    np.testing.assert_array_equal(fresh.view.rig.orbit.up, (0, 0, -1))


# -- bookmarks and the clipboard -----------------------------------------------


def test_bookmarks_are_saved_and_opened_by_keys(view: Any) -> None:
    press_shortcut(view, "Ctrl 3")
    assert "bookmark 3" in messages(view)
    view.view.rig.use_camera(SIDE)
    press_shortcut(view, "3")
    arrive(view)
    np.testing.assert_array_equal(viewmat(view), FRONT.viewmat)
    bookmark = view.view.host.memo.get("bookmarks/scene")["3"]
    assert bookmark["camera"]["viewmat"] == FRONT.viewmat.tolist()


def test_camera_is_copied_to_the_clipboard_and_pasted(
    view: Any, screen: OffscreenScreen
) -> None:
    press_shortcut(view, "Ctrl C")
    panel = Surface()

    def draw_ui(_: Rect, scale: float) -> bool:
        return view.draw_ui(RECT, scale)

    panel.draw_over(screen.framebuffer, draw_ui, 1.0)
    text = imgui.get_clipboard_text()
    panel.close()

    def pasted() -> str:
        return text

    view.view.host.pasted = pasted

    def paste_by_key() -> None:
        press_shortcut(view, "Ctrl V")

    def paste_on_a_page() -> None:
        # A page sends the pasted text alone.
        assert view.handle(Text(text), RECT)

    for paste in (paste_by_key, paste_on_a_page):
        view.view.rig.use_camera(SIDE)
        paste()
        arrive(view)
        np.testing.assert_array_equal(viewmat(view), FRONT.viewmat)


# -- the axes in the corner ----------------------------------------------------


@pytest.mark.parametrize("axis", [0, 3, 5])
def test_click_on_an_axis_looks_along_it(view: Any, axis: int) -> None:
    orbit = view.view.rig.orbit
    view.view.rig.use_camera(SIDE)
    orbit.orbit(0.4, 0.3)
    view.view.rig.apply_orbit()
    end = np.eye(3)[axis // 2]
    if axis % 2:
        end = -end
    # The axes are around a middle near the upper right corner.
    right, down, _ = 30 * (orbit.rotation @ end)
    x = RECT.x + RECT.width - 56 + right
    y = RECT.y + 62 + down
    distance = orbit.distance
    target = orbit.target.copy()
    assert view.handle(PointerMove(x, y), RECT)
    assert view.handle(PointerPress(x, y), RECT)
    view.handle(PointerRelease(x, y), RECT)
    arrive(view)
    position = view.view.rig.orbit.position
    np.testing.assert_allclose(position, target + distance * end, atol=1e-6)
    assert not view.view.rig.orbit.dragging
