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
from support.view_cases import scene_view, view_pixels
from support.wait import wait_until

from splatview_viewer.core.events import (
    Key,
    Mods,
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
from splatview_viewer.shell.panel import Panel

RECT = Rect(20, 10, 400, 300)
FRONT = Camera(look_at((0.0, 0.0, -5.0), (0, 0, 0)), intrinsics(50, 400, 300), 400, 300)
SIDE = Camera(look_at((5.0, -1.0, 0.0), (0, 0, 0)), intrinsics(30, 400, 300), 400, 300)
CTRL: Mods = frozenset({"ctrl"})
CENTERS = [(0.0, 0.0, 0.0), (1.0, 0.5, 2.0)]


def balls(centers: np.ndarray) -> dict[str, torch.Tensor]:
    """Red, round, nearly opaque Gaussians (N, 3)."""
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
    """Two balls, seen from the front."""
    screen.resize(440, 330, 1.0)
    made = scene_view(screen)
    made.said = []  # type: ignore[attr-defined]
    made.view.host = Host(made.said.append, name="scene")  # type: ignore[attr-defined]
    made.update(gaussian_frame(balls(np.array(CENTERS)), color="rgb"))
    view_pixels(made, screen, RECT)
    made.view.rig.use_camera(FRONT)
    view_pixels(made, screen, RECT)
    yield made
    made.close()


def viewmat(view: Any) -> np.ndarray:
    camera = view.view.rig.camera(RECT)
    assert camera is not None
    return camera.viewmat


def arrive(view: Any, start: float = 50.0) -> None:
    """Let time pass until the camera rests."""
    assert any(not view.tick(start + i / 60) for i in range(200)), "it never rests"


def said(view: Any) -> str:
    return " | ".join(view.said)  # type: ignore[attr-defined]


# -- flights -------------------------------------------------------------------


def test_a_flight_ends_in_exactly_the_camera_that_was_given(view: Any) -> None:
    off_center = replace(
        SIDE, K=SIDE.K + np.array([[0, 0, 31.0], [0, 0, -17], [0, 0, 0]])
    )
    before = viewmat(view)
    view.view.rig.fly_to(off_center)
    np.testing.assert_allclose(viewmat(view), before, atol=1e-9)
    assert view.tick(10.0)
    assert view.tick(10.2)
    midway = viewmat(view)
    assert np.abs(midway - before).max() > 0.1
    assert np.abs(midway - off_center.viewmat).max() > 0.1
    arrive(view, 10.25)
    camera = view.view.rig.camera(RECT)
    assert camera is not None
    assert camera.key == off_center.key
    assert not view.tick(20.0)


@pytest.mark.parametrize(
    "event", [PointerPress(200, 100), Wheel(200, 100, 1.0), Key("w")]
)
def test_the_user_interrupts_a_flight(view: Any, event: Any) -> None:
    view.view.rig.fly_to(SIDE)
    view.tick(10.0)
    view.tick(10.2)
    view.handle(event, RECT)
    view.handle(Key("w", False), RECT)
    arrive(view, 10.21)
    assert np.abs(viewmat(view) - SIDE.viewmat).max() > 0.1


# -- keys that are held --------------------------------------------------------


def test_flying_looks_around_and_the_wheel_sets_the_speed(view: Any) -> None:
    assert view.handle(Key("o"), RECT)
    position = view.view.rig.orbit.position
    for event in (
        PointerPress(200, 100),
        PointerMove(250, 100),
        PointerRelease(250, 100),
    ):
        view.handle(event, RECT)
    np.testing.assert_allclose(view.view.rig.orbit.position, position, atol=1e-9)
    assert np.abs(viewmat(view) - FRONT.viewmat).max() > 0.1
    before = viewmat(view)
    for dy in (2.0, -1.0):
        assert view.handle(Wheel(200, 100, dy), RECT)
    np.testing.assert_array_equal(viewmat(view), before)
    assert "Speed" not in said(view)
    view.tick(1e9)
    view.tick(1e9 + 1)
    assert said(view).count("Speed 1.1x") == 1  # once, when the wheel rests
    view.handle(Key("o"), RECT)
    view.handle(Wheel(200, 100, 2.0), RECT)
    assert np.abs(viewmat(view) - before).max() > 0.1


# -- the pivot -----------------------------------------------------------------


def test_a_double_click_orbits_around_what_is_there(view: Any) -> None:
    p = FRONT.viewmat[:3, :3] @ CENTERS[1] + FRONT.viewmat[:3, 3]
    x = FRONT.K[0, 0] * p[0] / p[2] + 200
    y = FRONT.K[1, 1] * p[1] / p[2] + 150
    for clicks in (1, 2):
        view.handle(PointerPress(RECT.x + x, RECT.y + y, clicks=clicks), RECT)
        view.handle(PointerRelease(RECT.x + x, RECT.y + y), RECT)
    wait_until(lambda: view.tick(50.0))  # the flight begins when the point is found
    arrive(view)
    np.testing.assert_allclose(view.view.rig.orbit.target, CENTERS[1], atol=0.1)
    np.testing.assert_allclose(
        view.view.rig.orbit.rotation, FRONT.viewmat[:3, :3], atol=1e-9
    )
    assert view.view.rig.orbit.distance == pytest.approx(p[2], abs=0.1)


# -- up ------------------------------------------------------------------------


def ground() -> dict[str, torch.Tensor]:
    """A floor in a world where x points up, and a heap on it."""
    random = np.random.default_rng(0)
    centers = random.uniform(-3, 3, (3000, 3)) * [0.001, 1, 1]
    heap = random.normal(0, 0.4, (len(centers[::4]), 3))
    heap[:, 0] += 1.2
    centers[::4] = heap
    return balls(centers)


@pytest.fixture(name="fresh")
def fresh_fixture(screen: OffscreenScreen) -> Iterator[Any]:
    """A view that has shown nothing yet."""
    screen.resize(440, 330, 1.0)
    made = scene_view(screen)
    yield made
    made.close()


def test_up_is_found_in_the_ground_unless_the_user_says_it(
    view: Any, fresh: Any, screen: OffscreenScreen
) -> None:
    fresh.update(gaussian_frame(ground(), color="rgb"))
    view_pixels(fresh, screen, RECT)
    np.testing.assert_array_equal(fresh.view.rig.orbit.up, (1, 0, 0))
    assert viewmat(fresh)[1, 0] < 0  # x is up in the picture
    fresh.view.rig.reset_to(None)  # as `grab` does for each picture
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
    np.testing.assert_array_equal(
        view.view.rig.orbit.up, (0, -1, 0)
    )  # two balls stand on nothing


@pytest.mark.parametrize("cameras_first", [True, False])
def test_up_of_the_file_goes_before_the_ground_and_cameras(
    cameras_first: bool, fresh: Any, screen: OffscreenScreen
) -> None:
    means, quats, scales, opacities, sh0 = ground().values()
    scene = GaussianScene(
        means,
        quats,
        scales,
        opacities,
        sh0,
        torch.zeros(len(means), 0, 3),
        up=(0, 0, -1),
    )
    up_axis = fresh.view.rig.up_axis
    if cameras_first:
        up_axis.use_cameras(np.eye(4)[None])
    fresh.update(scene)
    view_pixels(fresh, screen, RECT)
    up_axis.use_cameras(np.eye(4)[None])
    view_pixels(fresh, screen, RECT)
    np.testing.assert_array_equal(fresh.view.rig.orbit.up, (0, 0, -1))


# -- bookmarks and the clipboard -----------------------------------------------


def test_bookmarks_by_keys(view: Any) -> None:
    assert view.handle(Key("3", mods=CTRL), RECT)
    assert "bookmark 3" in said(view)
    view.view.rig.use_camera(SIDE)
    assert view.handle(Key("4"), RECT) is False  # there is none
    assert view.handle(Key("3"), RECT)
    arrive(view)
    np.testing.assert_array_equal(viewmat(view), FRONT.viewmat)
    assert (
        view.view.host.memo.get("bookmarks/scene")["3"]["camera"]["viewmat"]
        == FRONT.viewmat.tolist()
    )


def test_the_camera_goes_to_the_clipboard_and_back(
    view: Any, screen: OffscreenScreen
) -> None:
    assert view.handle(Key("c", mods=CTRL), RECT)
    panel = Panel()
    panel.draw_over(screen.framebuffer, lambda _, scale: view.draw_ui(RECT, scale), 1.0)
    text = imgui.get_clipboard_text()
    panel.close()
    view.view.host.pasted = lambda: text
    for paste in (Key("v", mods=CTRL), Text(text)):  # a page has the text alone
        view.view.rig.use_camera(SIDE)
        assert view.handle(paste, RECT)
        arrive(view)
        np.testing.assert_array_equal(viewmat(view), FRONT.viewmat)


# -- the axes in the corner ----------------------------------------------------


@pytest.mark.parametrize("axis", [0, 3, 5])
def test_a_click_on_an_axis_looks_along_it(view: Any, axis: int) -> None:
    view.view.rig.use_camera(SIDE)
    view.view.rig.orbit.orbit(0.4, 0.3)
    view.view.rig.apply_orbit()
    end = np.eye(3)[axis // 2] * (1 if axis % 2 == 0 else -1)
    right, down, _ = 34 * (
        view.view.rig.orbit.rotation @ end
    )  # around a middle 56.5 points off the lower left corner
    x = RECT.x + 56.5 + right
    y = RECT.y + RECT.height - 56.5 + down
    distance = view.view.rig.orbit.distance
    target = view.view.rig.orbit.target.copy()
    assert view.handle(PointerMove(x, y), RECT)
    assert view.handle(PointerPress(x, y), RECT)
    view.handle(PointerRelease(x, y), RECT)
    arrive(view)
    np.testing.assert_allclose(
        view.view.rig.orbit.position, target + distance * end, atol=1e-6
    )
    assert not view.view.rig.orbit.dragging
