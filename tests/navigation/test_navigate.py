"""The tool that moves a scene's camera: flights, keys that are held, the pivot, what is up."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.frames import gaussian_frame
from support.navigate_cases import (  # noqa: F401
    CENTERS,
    CTRL,
    FRONT,
    RECT,
    SHIFT,
    SIDE,
    arrive,
    balls,
    module_screen,
    navigate_fixture,
    said,
    screen_fixture,
    view_fixture,
    viewmat,
)
from support.view_cases import shown

from splatview.viewer_app.cameras import look_at
from splatview.viewer_app.events import Key, Pinch, PointerLeave, PointerMove, PointerPress, PointerRelease, Wheel
from splatview.viewer_app.interface.panel import Panel
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview.viewer_app.controls import Rect
    from splatview.viewer_app.screens.offscreen import OffscreenScreen
    from splatview.viewer_app.views._gaussians.navigate import Navigate


# -- flights -------------------------------------------------------------------------------------------------


def test_a_flight_ends_in_exactly_the_camera_that_was_given(view: GaussianView) -> None:
    off_center = replace(SIDE, K=SIDE.K + np.array([[0, 0, 31.0], [0, 0, -17], [0, 0, 0]]))
    before = viewmat(view)
    view.fly_to(off_center)
    np.testing.assert_allclose(viewmat(view), before, atol=1e-9)
    assert view.tick(10.0)
    assert view.tick(10.2)
    between = viewmat(view)
    assert np.abs(between - before).max() > 0.1
    assert np.abs(between - off_center.viewmat).max() > 0.1
    arrive(view, 10.25)
    camera = view.camera(RECT)
    assert camera is not None
    assert camera.key == off_center.key
    assert not view.tick(20.0)


def test_no_seconds_are_at_once(view: GaussianView, screen: OffscreenScreen) -> None:
    view.fly_to(SIDE, 0)
    camera = view.camera(RECT)
    assert camera is not None
    assert camera.key == SIDE.key
    fresh = GaussianView(screen.ctx)
    fresh.fly_to(SIDE)  # there is nothing yet to fly over
    fresh.update(gaussian_frame())
    shown(fresh, screen, RECT)
    camera = fresh.camera(RECT)
    assert camera is not None
    assert camera.key == SIDE.key
    fresh.close()


@pytest.mark.parametrize("event", [PointerPress(200, 100), Wheel(200, 100, 1.0), Pinch(200, 100, 1.1), Key("w")])
def test_the_user_interrupts_a_flight(view: GaussianView, event: Any) -> None:
    view.fly_to(SIDE)
    view.tick(10.0)
    view.tick(10.2)
    view.handle(event, RECT)
    view.handle(Key("w", False), RECT)
    arrive(view, 10.21)
    assert np.abs(viewmat(view) - SIDE.viewmat).max() > 0.1


def test_who_puts_the_camera_elsewhere_ends_a_flight(view: GaussianView) -> None:
    for put in (lambda: view.use_camera(FRONT), lambda: view.look_with(FRONT), view.frame):
        view.fly_to(SIDE)
        view.tick(10.0)
        view.tick(10.2)
        put()
        after = viewmat(view)
        view.tick(10.3)
        view.tick(12.0)
        np.testing.assert_array_equal(viewmat(view), after)


def test_f_sees_the_whole_scene_in_the_same_direction(view: GaussianView) -> None:
    view.handle(PointerPress(200, 100), RECT)
    view.handle(PointerMove(260, 130), RECT)
    view.handle(PointerRelease(260, 130), RECT)
    view.handle(Wheel(200, 100, 8), RECT)
    rotation = view.orbit.rotation.copy()
    assert view.handle(Key("f"), RECT)
    assert arrive(view) > 10
    np.testing.assert_allclose(view.orbit.rotation, rotation, atol=1e-9)
    camera = view.camera(RECT)
    assert camera is not None
    for center in CENTERS:
        p = camera.viewmat[:3, :3] @ center + camera.viewmat[:3, 3]
        x, y = camera.K[0, 0] * p[0] / p[2] + camera.K[0, 2], camera.K[1, 1] * p[1] / p[2] + camera.K[1, 2]
        assert 0 < x < 400 and 0 < y < 300


def test_r_levels_and_then_looks_as_at_first(view: GaussianView, screen: OffscreenScreen) -> None:
    view.frame()
    shown(view, screen, RECT)
    first = viewmat(view).copy()
    view.handle(PointerPress(200, 100, "left", CTRL), RECT)
    view.handle(PointerMove(100, 200, CTRL), RECT)
    view.handle(PointerRelease(100, 200), RECT)
    view.handle(PointerPress(200, 100), RECT)
    view.handle(PointerMove(240, 90), RECT)
    view.handle(PointerRelease(240, 90), RECT)
    assert abs(view.orbit.tilt) > 0.5
    position = view.orbit.position
    view.handle(Key("r"), RECT)
    arrive(view)
    assert view.orbit.tilt == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(view.orbit.position, position, atol=1e-9)
    view.handle(Key("r"), RECT)
    arrive(view)
    np.testing.assert_allclose(viewmat(view), first, atol=1e-9)


# -- keys that are held ------------------------------------------------------------------------------------------


def held(view: GaussianView, *names: str, seconds: float = 1.0, rate: float = 60.0) -> None:
    """Hold keys for a while, and wait until the camera rests."""
    view.tick(1000.0)
    for name in names:
        assert view.handle(Key(name), RECT)
    view.tools["navigate"].flying._then = 1000.0  # type: ignore[attr-defined]
    for i in range(1, round(seconds * rate) + 1):
        assert view.tick(1000.0 + i / rate)
    for name in names:
        view.handle(Key(name, False), RECT)
    arrive(view, 1000.0 + seconds)


@pytest.mark.parametrize(("name", "way"), [
    ("w", (0, 0, 1)), ("s", (0, 0, -1)), ("a", (-1, 0, 0)), ("d", (1, 0, 0)), ("e", (0, -1, 0)), ("q", (0, 1, 0)),
    ("left", (-1, 0, 0)), ("right", (1, 0, 0)), ("up", (0, -1, 0)), ("down", (0, 1, 0)),
])
def test_keys_move_camera_and_pivot(view: GaussianView, name: str, way: tuple[int, int, int]) -> None:
    position, target = view.orbit.position, view.orbit.target.copy()
    held(view, name)
    moved = view.orbit.position - position
    assert moved @ way > 1
    np.testing.assert_allclose(moved, np.array(way) * (moved @ way), atol=1e-9)
    np.testing.assert_allclose(view.orbit.target - target, moved, atol=1e-9)


def test_the_rate_of_pictures_makes_no_difference(view: GaussianView) -> None:
    places = []
    for rate in (10.0, 60.0, 200.0):
        view.use_camera(FRONT)
        held(view, "w", "d", "z", rate=rate)
        places.append(np.append(view.orbit.position, view.orbit.tilt))
    assert places[0][2] == pytest.approx(places[2][2], abs=0.02)
    assert places[0][3] == pytest.approx(places[2][3], abs=0.01)
    # While it rolls, how it goes sideways depends a little on where each picture finds it.
    np.testing.assert_allclose(places[1], places[2], atol=0.03)
    np.testing.assert_allclose(places[0], places[2], atol=0.2)


def test_keys_end_where_typing_begins_and_where_the_pointer_is_elsewhere(
        view: GaussianView, navigate: Navigate, screen: OffscreenScreen, monkeypatch: pytest.MonkeyPatch) -> None:
    view.handle(Key("w"), RECT)
    view.handle(PointerLeave(), RECT)
    arrive(view)
    view.handle(Key("w", repeat=True), RECT)  # it is held still: the screen says so again and again
    view.handle(PointerLeave(), RECT)
    assert navigate.flying.moving
    panel = Panel()
    try:
        panel.draw_over(screen.framebuffer, view.over, 1.0)
        assert navigate.flying.moving
        from imgui_bundle import imgui

        io = imgui.get_io()
        over = view.over

        def typed(rect: Rect, scale: float) -> bool:
            io.want_text_input = True
            return over(rect, scale)

        panel.draw_over(screen.framebuffer, typed, 1.0)
        arrive(view, 70.0)
        assert not navigate.flying.moving
    finally:
        panel.close()


def test_while_something_moves_the_next_turn_is_asked_for(view: GaussianView, screen: OffscreenScreen) -> None:
    woken: list[int] = []
    view.desk.wake = lambda: woken.append(1)
    shown(view, screen, RECT)
    assert not woken
    view.handle(Key("w"), RECT)
    shown(view, screen, RECT)
    assert woken
    view.handle(Key("w", False), RECT)
    arrive(view)
    woken.clear()
    shown(view, screen, RECT)
    assert not woken


def test_flying_looks_around_and_the_wheel_sets_the_speed(view: GaussianView, navigate: Navigate) -> None:
    assert view.handle(Key("o"), RECT)
    position = view.orbit.position
    view.handle(PointerPress(200, 100), RECT)
    view.handle(PointerMove(250, 100), RECT)
    view.handle(PointerRelease(250, 100), RECT)
    np.testing.assert_allclose(view.orbit.position, position, atol=1e-9)
    assert np.abs(viewmat(view) - FRONT.viewmat).max() > 0.1
    before = viewmat(view)
    assert view.handle(Wheel(200, 100, 2.0), RECT)
    np.testing.assert_array_equal(viewmat(view), before)
    assert navigate.flying.speed > 1.2
    assert view.handle(Wheel(200, 100, -1.0), RECT)
    assert "Speed" not in said(view)
    view.tick(1e9)
    view.tick(1e9 + 1)
    assert said(view).count("Speed 1.1x") == 1  # once, when the wheel rests
    view.handle(Key("o"), RECT)
    view.handle(Wheel(200, 100, 2.0), RECT)
    assert np.abs(viewmat(view) - before).max() > 0.1


# -- the pivot ---------------------------------------------------------------------------------------------------


def click_twice(view: GaussianView, x: float, y: float, wait_until: Callable[..., Any]) -> None:
    navigate: Navigate = view.tools["navigate"]  # type: ignore[assignment]
    for clicks in (1, 2):
        view.handle(PointerPress(x, y, clicks=clicks), RECT)
        view.handle(PointerRelease(x, y), RECT)

    def answered() -> bool:
        view.tick(50.0)
        return not navigate._picker.busy

    wait_until(answered)
    arrive(view)


def test_a_double_click_orbits_around_what_is_there(view: GaussianView, wait_until: Callable[..., Any]) -> None:
    p = FRONT.viewmat[:3, :3] @ CENTERS[1] + FRONT.viewmat[:3, 3]
    x, y = FRONT.K[0, 0] * p[0] / p[2] + 200, FRONT.K[1, 1] * p[1] / p[2] + 150
    click_twice(view, RECT.x + x, RECT.y + y, wait_until)
    np.testing.assert_allclose(view.orbit.target, CENTERS[1], atol=0.1)
    np.testing.assert_allclose(view.orbit.rotation, FRONT.viewmat[:3, :3], atol=1e-9)
    assert view.orbit.distance == pytest.approx(p[2], abs=0.1)


def test_a_double_click_into_the_void_changes_nothing(view: GaussianView, wait_until: Callable[..., Any]) -> None:
    before = viewmat(view)
    click_twice(view, RECT.x + 3, RECT.y + 3, wait_until)
    np.testing.assert_array_equal(viewmat(view), before)
    assert "nothing" in said(view)


# -- up ------------------------------------------------------------------------------------------------------------


def ground(count: int = 3000) -> dict[str, torch.Tensor]:
    """A floor in a world where x points up, and a heap on it."""
    random = np.random.default_rng(0)
    centers = random.uniform(-3, 3, (count, 3)) * [0.001, 1, 1]
    heap = random.normal(0, 0.4, (len(centers[::4]), 3))
    heap[:, 0] += 1.2
    centers[::4] = heap
    return balls(centers)


def test_up_is_found_in_the_ground_unless_the_user_says_it(view: GaussianView, screen: OffscreenScreen) -> None:
    fresh = GaussianView(screen.ctx)
    fresh.update(gaussian_frame(ground(), color="rgb"))
    shown(fresh, screen, RECT)
    np.testing.assert_array_equal(fresh.orbit.up, (1, 0, 0))
    assert viewmat(fresh)[1, 0] < 0  # x is up in the picture
    tool: Navigate = fresh.tools["navigate"]  # type: ignore[assignment]
    tool.set_up(np.array([0.0, 0.0, 1.0]))
    fresh.frame()
    shown(fresh, screen, RECT)
    np.testing.assert_array_equal(fresh.orbit.up, (0, 0, 1))
    beside = fresh.beside(fresh.settings)
    beside.like(fresh)
    np.testing.assert_array_equal(beside.orbit.up, (0, 0, 1))
    beside.close()
    fresh.close()
    np.testing.assert_array_equal(view.orbit.up, (0, -1, 0))  # two balls stand on nothing


def test_published_cameras_say_what_is_up_before_the_ground_does(screen: OffscreenScreen) -> None:
    poses = np.stack([look_at((3 * math.cos(a), 3 * math.sin(a), 1.0), (0, 0, 0), (0, 0, 1)) for a in range(6)])
    fresh = GaussianView(screen.ctx)
    fresh.tools["navigate"].cameras(poses)  # type: ignore[attr-defined]
    fresh.update(gaussian_frame(ground(), color="rgb"))
    shown(fresh, screen, RECT)
    np.testing.assert_allclose(fresh.orbit.up, (0, 0, 1), atol=1e-9)
    fresh.close()


def test_cameras_that_come_later_turn_what_nobody_has_moved(screen: OffscreenScreen) -> None:
    poses = np.stack([look_at((3 * math.cos(a), 3 * math.sin(a), 1.0), (0, 0, 0), (0, 0, 1)) for a in range(6)])
    for moved in (False, True):
        fresh = GaussianView(screen.ctx)
        fresh.update(gaussian_frame(balls(np.array(CENTERS)), color="rgb"))
        shown(fresh, screen, RECT)
        if moved:
            fresh.handle(Wheel(200, 100, 1), RECT)
        before = viewmat(fresh)
        fresh.tools["navigate"].cameras(poses)  # type: ignore[attr-defined]
        fresh.tools["navigate"].cameras(poses)  # type: ignore[attr-defined]
        np.testing.assert_allclose(fresh.orbit.up, (0, 0, 1), atol=1e-9)
        if moved:
            np.testing.assert_array_equal(viewmat(fresh), before)
        else:
            assert viewmat(fresh)[1, 2] < -0.5  # z is up in the picture
        fresh.close()
